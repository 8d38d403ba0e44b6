//! An executor daemon: the hands of an AI agent.

pub mod limits;
pub mod process;
pub mod progress;
pub mod stop;
pub mod tools;
pub mod wire;
pub mod workspace;
