//! The daemon under load, and what there is to see of it from outside.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Counts, Row};

/// The daemon under load; it ends with this value.
pub(super) struct Daemon {
    _scratch: TempDir,
    guardian: Child,
    pub(super) url: String,
}

impl Daemon {
    /// Starts it over a scratch workspace.
    pub(super) fn start() -> Self {
        let scratch = TempDir::new().unwrap();
        let workspace = scratch.path().join("ws");
        std::fs::create_dir(&workspace).unwrap();
        std::fs::write(workspace.join("small"), "four kibibytes\n".repeat(273)).unwrap();
        std::fs::write(
            workspace.join("large"),
            "one mebibyte of it\n".repeat(55_188),
        )
        .unwrap();
        for file in 0..200 {
            let path = workspace.join(format!("file{file}.rs"));
            std::fs::write(path, format!("// {file}\nfn found() {{}}\n")).unwrap();
        }
        let own = env!("CARGO_BIN_EXE_bma-executor").into();
        let binary = std::env::var_os("RELEASE_BINARY").unwrap_or(own);
        let mut guardian = Command::new(binary)
            .args([
                "serve",
                "--no-key",
                "--listen",
                "127.0.0.1:0",
                "--log-level",
                "warn",
            ])
            .current_dir(&workspace)
            .env("XDG_STATE_HOME", scratch.path().join("state"))
            .env("HOME", scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(guardian.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line
            .trim_end()
            .strip_prefix("listening on ")
            .unwrap()
            .to_owned();
        Self {
            _scratch: scratch,
            guardian,
            url,
        }
    }

    /// Looks at it from outside, and takes what was counted since the last look.
    pub(super) fn look(&self, counts: &Counts) -> Row {
        let pid = children_of(self.guardian.id())[0];
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| -> f64 {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap();
            line.trim_matches(|char: char| !char.is_ascii_digit())
                .parse()
                .unwrap()
        };
        let taken = |times: &Mutex<Vec<Duration>>| {
            let mut times = std::mem::take(&mut *times.lock().unwrap());
            times.sort_unstable();
            let at = |share: usize| {
                times
                    .get(times.len() * share / 100)
                    .map_or(f64::NAN, |time| time.as_secs_f64() * 1_000.0)
            };
            [at(50), at(99)]
        };
        let load = std::fs::read_to_string("/proc/loadavg").unwrap();
        Row {
            calls: counts.calls.swap(0, Ordering::Relaxed),
            connections: counts.connections.swap(0, Ordering::Relaxed),
            bash: taken(&counts.bash),
            read: taken(&counts.read),
            bare: taken(&counts.bare)[0],
            rss: field("VmRSS:") / 1_024.0,
            descriptors: std::fs::read_dir(format!("/proc/{pid}/fd"))
                .unwrap()
                .count() as f64,
            threads: field("Threads:"),
            children: children_of(pid).len() as f64,
            load: load.split(' ').next().unwrap().to_owned(),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.guardian), Signal::TERM).unwrap();
        let status = self.guardian.wait().unwrap();
        assert!(
            status.success() || std::thread::panicking(),
            "the daemon ended with {status}"
        );
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(1)?
            .parse()
            .ok()
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|child| parent(*child) == Some(pid))
        .collect()
}
