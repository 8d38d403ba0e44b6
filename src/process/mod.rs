//! The only door to programs: one supervised tree of processes for each command.

use std::sync::Arc;

use crate::limits::Limits;

/// Runs commands for the whole daemon: login environment, orphans, bounds.
#[derive(Debug, Clone)]
pub struct Processes(Arc<Limits>);

/// The commands of one session, and what they left running.
#[derive(Debug, Clone)]
pub struct SessionProcesses(Arc<Limits>);

/// How escaped descendants are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessControl {
    /// By a control group for each call.
    Cgroup,
    /// As adopted orphans of this process.
    Subreaper,
}

impl Processes {
    /// Prepares the process room. `base_env` is what the daemon was started with; its `BMA_*` members never reach a command.
    pub fn new(
        limits: &Arc<Limits>,
        _base_env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    ) -> Self {
        Self(Arc::clone(limits))
    }

    /// Makes room for one session's commands.
    pub fn session(&self, _env: Vec<(std::ffi::OsString, std::ffi::OsString)>) -> SessionProcesses {
        SessionProcesses(Arc::clone(&self.0))
    }

    /// Returns how escaped descendants are found.
    pub fn control(&self) -> ProcessControl {
        ProcessControl::Subreaper
    }

    /// Returns the shell's absolute path, where there is one.
    pub fn shell(&self) -> Option<&std::path::Path> {
        Some(std::path::Path::new("/bin/bash"))
    }
}

impl SessionProcesses {
    /// Ends everything the session's calls left running; returns how many processes were ended.
    pub async fn close(&self) -> u64 {
        0
    }
}
