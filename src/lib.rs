//! An executor daemon: the hands of an AI agent.
//!
//! A *harness* runs the model; this *executor* runs the model's tool calls where the code is. They talk over a
//! WebSocket, in the protocol that `contracts/` defines.
//!
//! # The map
//! ```text
//! main ─► cli ─► daemon ─► net ─► dispatch ─► tools ─► workspace   (only door to files)
//!                            │        │          │         ▲ whole outputs
//!                            │        │          └───► process     (only door to programs)
//!                            └► wire ◄┘ (types only)
//!                                     └► journal
//! harness ─► wire, net::link      (the other end: `call`, `demo`)
//! cli ─► admin ─► dispatch        (looks at the hub; its own thread)
//! ```
//! - `cli`: the subcommands. The only room that prints, exits and reads the environment.
//! - `config`: one checked configuration from flags, environment and file. `limits`: every bound of the daemon.
//! - `daemon`: puts the rooms together behind a listener.
//! - `net`: bytes. Accepts connections; a task reads each and never waits, another writes.
//! - `dispatch`: sessions and calls. Admits without waiting, runs under one deadline, answers exactly once.
//! - `tools`: one tool, one file; plain inputs, plain outputs.
//! - `workspace`: paths below an open directory, reads, atomic replacement, walks.
//! - `process`: one supervised tree of processes per command, login environment, output, orphans; the daemon's guardian, and
//!   through it the service manager.
//! - `journal`: which calls began and what they came to, for the next daemon over the same workspace.
//! - `admin`: the admin port: whether the daemon lives, is ready, and what it has counted.
//! - `wire`: what crosses the socket, as types.
//! - `harness`: a small client.
//! - `state`: the state directory and keys. `secret`: random tokens and their comparison.
//! - `stop`, `progress`, `near`, `shutdown`, `telemetry`, `metrics`, `health`: leaves that anybody may use: why a call ends early,
//!   what it tells meanwhile, the thread that it may begin on, the process's signals, logs, counters, whether calls can be taken.
//!
//! # One call
//! `net/connection` reads a frame, `wire/codec` types it, `dispatch/receive` routes it, `dispatch/admit` reserves its
//! answer's slot, `dispatch/first_step` chooses the thread, `dispatch/run` runs the tool, `dispatch/deliver` keeps and
//! queues the result, `net/line` sends it from where it is, or the writer in `net/connection` where that is busy.
//!
//! # What is never there
//! - `wire` knows no runtime and no file. `net` knows no tool. `dispatch` knows neither socket nor spelling. `tools`
//!   see no JSON text, no socket and no session.
//! - Nothing outside `workspace` opens a path of a workspace; nothing outside `process` starts a program.
//! - No unbounded queue, buffer or wait. No `unsafe`.
//!
//! `tests/it/tidy.rs` holds these.

pub mod admin;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod dispatch;
pub mod harness;
pub mod health;
pub mod journal;
pub mod limits;
pub mod metrics;
pub mod near;
pub mod net;
pub mod process;
pub mod progress;
mod secret;
pub mod shutdown;
pub mod state;
pub mod stop;
pub mod telemetry;
pub mod tools;
pub mod wire;
pub mod workspace;
