//! What crosses the socket: types only, no behaviour.
//!
//! `contracts/` is the authority; each type here mirrors one schema there, and a test holds the two together.
//! Nothing in this room knows of tokio, of files or of processes.

mod call;
mod codec;
mod details;
mod encoded;
mod frame;
mod ids;
mod inputs;
mod outcome;
mod salvage;
mod strict;
mod text;
mod trace;

pub use call::{DeadlineMs, Decision, Permission, ToolCall};
pub use codec::{Refusal, decode, decode_object, decode_to_harness, encode};
pub use details::*;
pub use encoded::{Encoded, Fragment, Fragments};
pub use frame::*;
pub use ids::{InvalidId, SessionId, ToolCallId};
pub use inputs::*;
pub use outcome::*;
pub use text::{Text, TextBuilder};
pub use trace::TraceParent;

/// The protocol ids served, newest first.
pub const PROTOCOL_VERSIONS: [&str; 2] = ["bma.executor.v1.1", "bma.executor.v1"];
