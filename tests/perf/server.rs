//! A daemon to measure.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::plan::Plan;

/// A running daemon over a scratch workspace; it ends with this value.
#[derive(Debug)]
pub(crate) struct Server {
    scratch: TempDir,
    guardian: Child,
    address: String,
    /// From the start of the program to its first line.
    pub(crate) ready_after: Duration,
}

impl Server {
    /// Starts the daemon over an empty workspace.
    pub(crate) fn start(plan: &Plan) -> Self {
        Self::start_with(plan, TempDir::new().unwrap(), &[])
    }

    /// Starts the daemon over the workspace `ws` of a scratch directory, with further arguments.
    pub(crate) fn start_with(plan: &Plan, scratch: TempDir, arguments: &[&str]) -> Self {
        std::fs::create_dir_all(scratch.path().join("ws")).unwrap();
        let begun = Instant::now();
        let mut guardian = Command::new(&plan.daemon)
            .args(["serve", "--no-key", "--listen", "127.0.0.1:0"])
            .args(["--log-level", "error"])
            .args(arguments)
            .current_dir(scratch.path().join("ws"))
            .env("XDG_STATE_HOME", scratch.path().join("state"))
            // The start-up files of whoever measures are no part of the daemon's price.
            .env("HOME", scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let line = first_line(&mut guardian);
        let ready_after = begun.elapsed();
        let address = line.strip_prefix("listening on ws://").unwrap().to_owned();
        Self {
            scratch,
            guardian,
            address,
            ready_after,
        }
    }

    /// Its workspace.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.scratch.path().join("ws")
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The process that serves; its parent only watches over it.
    pub(crate) fn daemon_pid(&self) -> u32 {
        let me = self.guardian.id();
        let mut processes = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        processes
            .find(|pid| parent(*pid) == Some(me))
            .expect("the daemon runs")
    }

    /// Its resident memory, or the peak of it (`VmRSS`, `VmHWM`), in MiB.
    pub(crate) fn memory_mib(&self, field: &str) -> f64 {
        memory_mib(self.daemon_pid(), field)
    }
}

/// The first line that a program prints.
pub(crate) fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let stdout = child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// A field of `/proc/PID/status` (`VmRSS`, `VmHWM`), in MiB.
pub(crate) fn memory_mib(pid: u32, field: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line
        .unwrap()
        .trim_matches(|char: char| !char.is_ascii_digit());
    kib.parse::<f64>().unwrap() / 1_024.0
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = stat.rsplit_once(')')?.1;
    fields.split_whitespace().nth(1)?.parse().ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        let guardian = rustix::process::Pid::from_child(&self.guardian);
        rustix::process::kill_process(guardian, rustix::process::Signal::TERM).unwrap();
        self.guardian.wait().unwrap();
    }
}

/// A scratch directory in memory where that can be had: a disk takes minutes for a million files.
pub(crate) fn scratch_in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    TempDir::new_in(memory).or_else(|_| TempDir::new()).unwrap()
}
