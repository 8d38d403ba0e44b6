//! The integration tests: through a real socket, with real files and real processes.
//!
//! `support` starts executors and harness connections; every frame that a test sends or receives is held against
//! `contracts/` there. Each other file is one behaviour.

#![expect(unreachable_pub, reason = "nothing is outside of a test binary")]

mod support;

mod bash;
mod cli;
mod codec;
mod contracts;
mod files;
mod flow;
mod handshake;
mod malformed;
mod search;
mod sessions;
mod tidy;
