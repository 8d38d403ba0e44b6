//! An executor daemon: the hands of an AI agent.

pub mod cli;
pub mod config;
pub mod daemon;
pub mod dispatch;
pub mod harness;
pub mod limits;
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
