//! An executor daemon: the hands of an AI agent.

pub mod dispatch;
pub mod limits;
pub mod net;
pub mod process;
pub mod progress;
mod secret;
pub mod stop;
pub mod tools;
pub mod wire;
pub mod workspace;
