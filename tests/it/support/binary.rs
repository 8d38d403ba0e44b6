//! The real binary.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bma_executor::process::unmarked;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::SOON;
use super::client::Client;
use super::processes::{expect_none, running_in};

/// A command of the binary, in a directory, with a state directory and a home of its own and no variables of ours.
pub fn command(scratch: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bma-executor"));
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", scratch.join("home"))
        .env("XDG_STATE_HOME", scratch.join("state"))
        .current_dir(scratch.join("ws"))
        .stdin(Stdio::null());
    command
}

/// A scratch directory with a workspace `ws` and an empty `home`.
pub fn start_scratch() -> TempDir {
    lay_out(TempDir::new().unwrap())
}

/// The same in memory where that can be had: a disk takes minutes for a million files.
pub fn start_large_scratch() -> TempDir {
    lay_out(
        TempDir::new_in("/dev/shm")
            .or_else(|_| TempDir::new())
            .unwrap(),
    )
}

fn lay_out(scratch: TempDir) -> TempDir {
    for directory in ["ws", "home"] {
        std::fs::create_dir(scratch.path().join(directory)).unwrap();
    }
    scratch
}

/// What a finished command printed.
pub struct Printed {
    /// Its exit status.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl From<Output> for Printed {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Printed {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = unmarked(|| command.spawn()).unwrap();
    child.wait_with_output().unwrap().into()
}

/// A running `serve`.
pub struct Server {
    /// Its URL.
    pub url: String,
    scratch: TempDir,
    child: Child,
}

/// Starts `serve` on a free port with further arguments.
pub fn start_server(arguments: &[&str]) -> Server {
    start_server_in(start_scratch(), arguments)
}

/// Starts `serve` over the workspace of a scratch directory.
pub fn start_server_in(scratch: TempDir, arguments: &[&str]) -> Server {
    let mut command = command(scratch.path());
    let command = command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = unmarked(|| command.spawn()).unwrap();
    let (sender, line) = mpsc::channel();
    let stdout = child.stdout.take().unwrap();
    std::thread::spawn(move || {
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let _gone = sender.send(line);
    });
    let line = line
        .recv_timeout(SOON)
        .expect("the server says where it listens");
    let url = line
        .trim_end()
        .strip_prefix("listening on ")
        .unwrap_or_else(|| panic!("the first line is {line:?}"))
        .to_owned();
    Server {
        url,
        scratch,
        child,
    }
}

impl Server {
    /// Its workspace.
    pub fn workspace(&self) -> PathBuf {
        self.scratch.path().join("ws").canonicalize().unwrap()
    }

    /// Its scratch directory.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Runs `call` against it.
    pub fn call(&self, arguments: &[&str]) -> Printed {
        let mut command = command(self.scratch.path());
        run(command
            .arg("call")
            .args(arguments)
            .args(["--url", &self.url]))
    }

    /// The process that serves; its parent only watches over it.
    pub fn daemon(&self) -> Pid {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = std::fs::read_to_string(children).unwrap();
        let pid = children
            .split_whitespace()
            .next()
            .expect("the daemon runs")
            .parse()
            .unwrap();
        Pid::from_raw(pid).unwrap()
    }

    /// Connects as a v1.1 harness; for a server without a key.
    pub async fn connect(&self) -> Client {
        let address = self.url.strip_prefix("ws://").unwrap().parse().unwrap();
        let mut client = Client::connect(address, None).await;
        client.send_welcome().await;
        client
    }

    /// The memory of the process that serves, now or at most (`VmRSS`, `VmHWM`), in MiB.
    pub fn memory_mib(&self, field: &str) -> f64 {
        let status = format!("/proc/{}/status", self.daemon().as_raw_nonzero());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line
            .unwrap()
            .trim_matches(|char: char| !char.is_ascii_digit());
        kib.parse::<f64>().unwrap() / 1_024.0
    }

    /// Waits until the process that serves uses almost no processor: nothing works on there.
    pub async fn expect_idle(&self) {
        let stat = format!("/proc/{}/stat", self.daemon().as_raw_nonzero());
        let ticks = || -> u64 {
            let stat = std::fs::read_to_string(&stat).unwrap();
            let fields: Vec<_> = stat
                .rsplit_once(')')
                .unwrap()
                .1
                .split_whitespace()
                .collect();
            fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
        };
        let until = Instant::now() + Duration::from_secs(3);
        loop {
            let before = ticks();
            tokio::time::sleep(Duration::from_millis(200)).await;
            // A tick is 10 ms: a busy thread would use twenty.
            let used = ticks() - before;
            if used <= 2 {
                return;
            }
            assert!(Instant::now() < until, "{used} ticks were used in 200 ms");
        }
    }

    /// The process that was started.
    pub fn guardian(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Signals the process that was started, as an operator would.
    pub fn send_signal(&self, signal: Signal) {
        kill_process(self.guardian(), signal).unwrap();
    }

    /// Waits for its end; returns the exit status and the log.
    pub fn expect_end(&mut self, within: Duration) -> (Option<i32>, String) {
        let until = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it still runs after {within:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut log = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut log)
            .unwrap();
        (status.code(), log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.send_signal(Signal::TERM);
            let _status = self.child.wait();
        }
        if !std::thread::panicking() {
            let workspace = self.workspace();
            expect_none("a process of the server is", Duration::from_secs(5), || {
                running_in(&workspace)
            });
        }
    }
}
