//! The real binary.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bma_executor::process::unmarked;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::processes::{expect_none, processes, running_in};
use super::watched::Log;
use super::{Client, SOON};

/// A command of the binary, in a directory, with a state directory and a home of its own and no variables of ours.
pub fn command(scratch: &Path) -> Command {
    command_of(BINARY, scratch)
}

/// The binary's path.
pub const BINARY: &str = env!("CARGO_BIN_EXE_bma-executor");

fn command_of(program: &str, scratch: &Path) -> Command {
    let mut command = Command::new(program);
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

fn lay_out(scratch: TempDir) -> TempDir {
    for directory in ["ws", "home"] {
        std::fs::create_dir(scratch.path().join(directory)).unwrap();
    }
    scratch
}

/// The same in memory where that can be had: a disk takes minutes for a million files.
pub fn start_large_scratch() -> TempDir {
    lay_out(
        TempDir::new_in("/dev/shm")
            .or_else(|_| TempDir::new())
            .unwrap(),
    )
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
    scratch: TempDir,
    started: Started,
}

/// Starts `serve` on a free port with further arguments.
pub fn start_server(arguments: &[&str]) -> Server {
    start_server_in(start_scratch(), arguments)
}

/// Starts `serve` over the workspace of a scratch directory.
pub fn start_server_in(scratch: TempDir, arguments: &[&str]) -> Server {
    start_server_through(&[], scratch, arguments)
}

/// Starts `serve` through a program that takes a command and becomes it, such as `prlimit` or `setpriv`.
pub fn start_server_through(through: &[&str], scratch: TempDir, arguments: &[&str]) -> Server {
    let command = serve_through(through, scratch.path(), arguments);
    start_server_by(scratch, command)
}

fn serve_through(through: &[&str], scratch: &Path, arguments: &[&str]) -> Command {
    let mut line = [through, &[BINARY]].concat().into_iter();
    let mut command = command_of(line.next().unwrap(), scratch);
    command
        .args(line)
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(arguments);
    command
}

/// Starts `serve` by a command of the test's own, which may start it through other programs.
pub fn start_server_by(scratch: TempDir, command: Command) -> Server {
    let started = start(command);
    Server { scratch, started }
}

/// A started `serve` that has said where it listens.
struct Started {
    url: String,
    child: Child,
    daemon: Pid,
    guardian: Pid,
}

fn start(mut command: Command) -> Started {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
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
    let (daemon, guardian) = daemon_below(child.id());
    Started {
        url,
        child,
        daemon,
        guardian,
    }
}

/// The daemon and its guardian among what a process has started. The daemon alone is called by its bare name.
fn daemon_below(root: u32) -> (Pid, Pid) {
    let all = processes();
    let below = |mut pid: u32| loop {
        match all.iter().find(|process| process.pid == pid) {
            Some(_) if pid == root => return true,
            Some(process) => pid = process.ppid,
            None => return false,
        }
    };
    let daemon = all
        .iter()
        .find(|process| process.line.starts_with("bma-executor serve") && below(process.pid))
        .unwrap_or_else(|| panic!("no daemon among {all:#?}"));
    let as_pid = |pid: u32| Pid::from_raw(pid.try_into().unwrap()).unwrap();
    (as_pid(daemon.pid), as_pid(daemon.ppid))
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

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.started.url
    }

    /// Starts it again over the same workspace, once it has ended.
    pub fn start_again(&mut self, arguments: &[&str]) {
        self.started = start(serve_through(&[], self.scratch.path(), arguments));
    }

    /// The daemon's resident memory, or the peak of it (`VmRSS`, `VmHWM`), in MiB.
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

    /// Runs `call` against it.
    pub fn call(&self, arguments: &[&str]) -> Printed {
        let mut command = command(self.scratch.path());
        run(command
            .arg("call")
            .args(arguments)
            .args(["--url", self.url()]))
    }

    /// Connects as a v1.1 harness, to a server that asks for no key.
    pub async fn connect(&self) -> Client {
        let mut client = Client::connect(self.address(), None).await;
        client.send_welcome().await;
        client
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.started
            .url
            .strip_prefix("ws://")
            .unwrap()
            .parse()
            .unwrap()
    }

    /// The process that serves; its parent only watches over it.
    pub fn daemon(&self) -> Pid {
        self.started.daemon
    }

    /// The parent of the daemon: the process that was started, unless other programs came before it.
    pub fn guardian(&self) -> Pid {
        self.started.guardian
    }

    /// Signals the guardian, as an operator would.
    pub fn send_signal(&self, signal: Signal) {
        kill_process(self.started.guardian, signal).unwrap();
    }

    /// Takes its log while it runs; [`Self::expect_end`] then returns none.
    pub fn take_log(&mut self) -> Log {
        Log::of(self.started.child.stderr.take().unwrap())
    }

    /// Waits for its end; returns the exit status and the log.
    pub fn expect_end(&mut self, within: Duration) -> (Option<i32>, String) {
        let until = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.started.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it still runs after {within:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut log = String::new();
        if let Some(mut stderr) = self.started.child.stderr.take() {
            stderr.read_to_string(&mut log).unwrap();
        }
        (status.code(), log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.started.child.try_wait().unwrap().is_none() {
            self.send_signal(Signal::TERM);
            let _status = self.started.child.wait();
        }
        if !std::thread::panicking() {
            let workspace = self.workspace();
            expect_none("a process of the server is", Duration::from_secs(5), || {
                running_in(&workspace)
            });
        }
    }
}
