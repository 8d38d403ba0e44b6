//! Bytes: accepting or dialling connections, and the two tasks that read and write each.
//!
//! This room knows no tool and no session. What it reads goes to [`crate::dispatch`]; what it writes it takes from
//! there. Reader and writer are separate tasks: one task for both gets stuck as soon as both ends have full buffers.

mod accept;
mod connection;
mod dial;
mod io_thread;
mod line;
mod link;
mod plain;
mod reconnect;

pub use accept::Access;
pub use connection::{End, run as serve_connection};
pub use dial::{DialError, Dialled, Target, TargetError};
pub use io_thread::{IoThread, Pulse};
pub use link::{Link, LinkError, socket_config};
