//! The integration tests: through a real socket, with real files and real processes.
//!
//! `support` starts executors and harness connections; every frame that a test sends or receives is held against
//! `contracts/` there. Each other file is one behaviour.

#![expect(unreachable_pub, reason = "nothing is outside of a test binary")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    clippy::unwrap_in_result,
    clippy::match_wild_err_arm,
    clippy::manual_assert,
    clippy::format_collect,
    clippy::print_stdout,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "a test fails where these would, and looks at files and processes from outside"
)]

mod support;

mod bash;
mod cli;
mod codec;
mod contracts;
mod files;
mod flow;
mod handshake;
mod malformed;
mod ripgrep;
mod search;
mod search_huge;
mod search_shapes;
mod sessions;
mod tidy;
