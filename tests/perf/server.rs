//! A daemon to measure, and a connection to it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bma_executor::harness::Harness;
use bma_executor::net::Target;
use bma_executor::wire::{ResultAck, SessionId, ToHarness, ToolCall, ToolCallId, ToolResult};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

/// A running daemon over a scratch workspace; it ends with this value.
pub(crate) struct Server {
    scratch: TempDir,
    guardian: Child,
    url: String,
    /// From the start of the program to its first line.
    pub(crate) ready_after: Duration,
}

impl Server {
    /// Starts the daemon over an empty workspace.
    pub(crate) fn start() -> Self {
        let scratch = TempDir::new().unwrap();
        std::fs::create_dir(scratch.path().join("ws")).unwrap();
        let begun = Instant::now();
        let mut guardian = Command::new(env!("CARGO_BIN_EXE_bma-executor"))
            .args([
                "serve",
                "--no-key",
                "--listen",
                "127.0.0.1:0",
                "--log-level",
                "warn",
            ])
            .current_dir(scratch.path().join("ws"))
            .env("XDG_STATE_HOME", scratch.path().join("state"))
            // The start-up files of whoever measures are no part of the daemon's price.
            .env("HOME", scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(guardian.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready_after = begun.elapsed();
        let url = line
            .trim_end()
            .strip_prefix("listening on ")
            .unwrap()
            .to_owned();
        Self {
            scratch,
            guardian,
            url,
            ready_after,
        }
    }

    /// Its workspace.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.scratch.path().join("ws")
    }

    /// Its URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Connects.
    pub(crate) fn connect(&self) -> Driver {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let target = Target::new(&self.url, None, None).unwrap();
        let harness = runtime.block_on(Harness::connect(&target)).unwrap();
        let session = SessionId::new(&format!(
            "perf-{}",
            CONNECTIONS.fetch_add(1, Ordering::Relaxed)
        ));
        Driver {
            session: session.unwrap(),
            runtime,
            harness,
            calls: 0,
        }
    }

    /// The process that serves.
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
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.daemon_pid())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .unwrap();
        let kib: f64 = line
            .trim_start_matches(':')
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap();
        kib / 1_024.0
    }
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        let guardian = rustix::process::Pid::from_child(&self.guardian);
        rustix::process::kill_process(guardian, rustix::process::Signal::TERM).unwrap();
        self.guardian.wait().unwrap();
    }
}

/// One connection, driven from a thread that waits.
pub(crate) struct Driver {
    runtime: Runtime,
    harness: Harness,
    /// Its own, since a session belongs to one connection.
    session: SessionId,
    calls: usize,
}

impl Driver {
    /// Makes a call and waits for its result; returns it with the time it took.
    pub(crate) fn call(&mut self, name: &str, input: Value) -> (ToolResult, Duration) {
        let begun = Instant::now();
        let id = self.send(name, input);
        let result = self.result(&id);
        (result, begun.elapsed())
    }

    /// Sends a call.
    pub(crate) fn send(&mut self, name: &str, input: Value) -> ToolCallId {
        self.calls += 1;
        let id = ToolCallId::new(&format!("c{}", self.calls)).unwrap();
        let Value::Object(input) = input else {
            panic!("an input is an object")
        };
        let call = ToolCall {
            session_id: self.session.clone(),
            tool_call_id: id.clone(),
            name: name.to_owned(),
            input,
            deadline_ms: None,
            permission: None,
            traceparent: None,
        };
        self.runtime
            .block_on(self.harness.send(&call.into()))
            .unwrap();
        id
    }

    /// Waits for the result of a call.
    pub(crate) fn result(&mut self, id: &ToolCallId) -> ToolResult {
        loop {
            let result = self.any_result();
            if result.tool_call_id == *id {
                return result;
            }
        }
    }

    /// Waits for the next result of whichever call.
    pub(crate) fn any_result(&mut self) -> ToolResult {
        self.runtime.block_on(async {
            loop {
                if let ToHarness::ToolResult(result) = self.harness.next().await.unwrap() {
                    let (session_id, tool_call_id) =
                        (result.session_id.clone(), result.tool_call_id.clone());
                    self.harness
                        .send(
                            &ResultAck {
                                session_id,
                                tool_call_id,
                            }
                            .into(),
                        )
                        .await
                        .unwrap();
                    return result;
                }
            }
        })
    }
}

/// Makes a directory of a test's own below a workspace.
pub(crate) fn make_dir(workspace: &Path, name: &str) -> PathBuf {
    let path = workspace.join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}
