//! A long run in miniature: mixed load with connections that come and go, and a verdict on what must not grow meanwhile.
//!
//! `cargo bench --locked --bench perf -- soak [SECONDS]` (600 unless said otherwise). It stands alone: its figures are
//! compared with each other, not with a goal, so it also tells the truth on a machine that others use.
//! `RELEASE_BINARY` names another binary than the bench's own, such as the one that `deploy/release` makes.

#![expect(
    clippy::wildcard_enum_match_arm,
    clippy::unwrap_in_result,
    clippy::map_err_ignore,
    reason = "a bench passes over what it does not ask for, and stops where an unwrap would"
)]

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use bma_executor::harness::Harness;
use bma_executor::net::Target;
use bma_executor::wire::{
    Outcome, ResultAck, SessionClose, SessionId, SessionOpen, ToExecutor, ToHarness, ToolCall,
    ToolCallId, ToolCancel, ToolResult,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Harnesses at one time, each with a session of its own.
const HARNESSES: usize = 4;

/// How long a connection lives.
const CONNECTION: Duration = Duration::from_secs(5);

/// Pause of a harness after each call: a model thinks longer, and the machine has others to serve.
const PAUSE: Duration = Duration::from_millis(5);

/// Parts of the run, a row each.
const ROWS: u32 = 10;

/// How long everything stands still before the daemon is looked at: what a call leaves for a moment is no growth.
const STILL: Duration = Duration::from_secs(1);

/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_mins(1);

/// What the harnesses count together.
#[derive(Default)]
struct Counts {
    calls: AtomicU64,
    connections: AtomicU64,
    sent_again: AtomicU64,
    wrong: Mutex<Vec<String>>,
    /// Times of `bash{true}` and of a 4 KiB `read`, and of a bare `bash -c true` beside them.
    bash: Mutex<Vec<Duration>>,
    read: Mutex<Vec<Duration>>,
    bare: Mutex<Vec<Duration>>,
}

/// One row of the table.
struct Row {
    calls: u64,
    connections: u64,
    bash: [f64; 2],
    read: [f64; 2],
    bare: f64,
    rss: f64,
    descriptors: f64,
    threads: f64,
    children: f64,
    load: String,
}

/// Runs for so long; returns the exit status.
pub(crate) fn run(seconds: Option<&String>) -> i32 {
    let seconds: u32 = seconds.map_or(600, |text| text.parse().expect("SECONDS is a number"));
    let daemon = Daemon::start();
    let (counts, gate, stop) = (Counts::default(), RwLock::new(()), AtomicBool::new(false));
    let mut rows = Vec::new();
    println!(
        "| part | calls | connections | bash p50, p99 | read p50, p99 | bare bash p50 | RSS | descriptors | threads | processes | load |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    std::thread::scope(|scope| {
        for number in 0..HARNESSES {
            let (daemon, counts, gate, stop) = (&daemon, &counts, &gate, &stop);
            scope.spawn(move || work(number, daemon, counts, gate, stop));
        }
        let begun = Instant::now();
        for part in 1..=ROWS {
            let until = begun + Duration::from_secs(seconds.into()) * part / ROWS;
            while Instant::now() < until && counts.wrong.lock().unwrap().is_empty() {
                let spawned = Instant::now();
                Command::new("/bin/bash")
                    .args(["-c", "true"])
                    .status()
                    .unwrap();
                counts.bare.lock().unwrap().push(spawned.elapsed());
                std::thread::sleep(Duration::from_millis(200));
            }
            let still = gate.write().unwrap();
            std::thread::sleep(STILL);
            let row = daemon.look(&counts);
            drop(still);
            println!("| {part} {row}");
            rows.push(row);
            if !counts.wrong.lock().unwrap().is_empty() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!(
        "\n{seconds} s, {HARNESSES} harnesses; results sent again after a reconnect: {}",
        counts.sent_again.into_inner()
    );
    let mut wrong = counts.wrong.into_inner().unwrap();
    if wrong.is_empty() {
        wrong = verdict(&rows);
    }
    for what in &wrong {
        println!("NOT FLAT: {what}");
    }
    if wrong.is_empty() {
        println!(
            "flat: parts 8 to 10 beside parts 4 to 6 (memory within 5 % + 1 MiB, descriptors and threads within 2, no process more, p50 within 30 % + 0.2 ms after the machine's own change)"
        );
    }
    i32::from(!wrong.is_empty())
}

/// What grew from the middle of the run to its end.
fn verdict(rows: &[Row]) -> Vec<String> {
    let mut wrong = Vec::new();
    let median = |rows: &[Row], value: fn(&Row) -> f64| {
        let mut values: Vec<f64> = rows.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (early, late) = (&rows[3..6], &rows[7..10]);
    // A machine that got busier makes everything slower; how much, the bare spawn tells.
    let machine = (median(late, |row| row.bare) / median(early, |row| row.bare)).max(1.0);
    let mut hold = |what: &str, value: fn(&Row) -> f64, factor: f64, more: f64| {
        let (before, after) = (median(early, value), median(late, value));
        let most = before * factor + more;
        if after > most {
            wrong.push(format!(
                "{what}: {before:.2}, later {after:.2}, allowed {most:.2}"
            ));
        }
    };
    hold("memory in MiB", |row| row.rss, 1.05, 1.0);
    hold("descriptors", |row| row.descriptors, 1.0, 2.0);
    hold("threads", |row| row.threads, 1.0, 2.0);
    hold("processes", |row| row.children, 1.0, 0.0);
    hold(
        "bash{true}, p50 in ms",
        |row| row.bash[0],
        1.3 * machine,
        0.2,
    );
    hold(
        "read 4 KiB, p50 in ms",
        |row| row.read[0],
        1.3 * machine,
        0.2,
    );
    wrong
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pair = |[p50, p99]: [f64; 2]| format!("{p50:.2}, {p99:.1} ms");
        write!(
            f,
            "| {} | {} | {} | {} | {:.2} ms | {:.1} MiB | {} | {} | {} | {} |",
            self.calls,
            self.connections,
            pair(self.bash),
            pair(self.read),
            self.bare,
            self.rss,
            self.descriptors,
            self.threads,
            self.children,
            self.load,
        )
    }
}

/// The daemon under load; it ends with this value.
struct Daemon {
    _scratch: TempDir,
    guardian: Child,
    url: String,
}

impl Daemon {
    fn start() -> Self {
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
    fn look(&self, counts: &Counts) -> Row {
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

/// One harness: calls, until told to stop; what goes wrong ends it and is kept.
fn work(number: usize, daemon: &Daemon, counts: &Counts, gate: &RwLock<()>, stop: &AtomicBool) {
    let mut harness = Worker::connect(number, daemon, counts);
    let mut reconnect = Instant::now() + CONNECTION * u32::try_from(number + 1).unwrap() / 4;
    for turn in 0_u64.. {
        if stop.load(Ordering::Relaxed) || !counts.wrong.lock().unwrap().is_empty() {
            return;
        }
        let alive = gate.read().unwrap();
        let done = if Instant::now() > reconnect {
            reconnect = Instant::now() + CONNECTION;
            harness.reconnect(turn)
        } else {
            harness.turn(number, turn)
        };
        if let Err(what) = done {
            counts
                .wrong
                .lock()
                .unwrap()
                .push(format!("harness {number}, turn {turn}: {what}"));
            return;
        }
        drop(alive);
        std::thread::sleep(PAUSE);
    }
}

struct Worker<'a> {
    runtime: Runtime,
    daemon: &'a Daemon,
    counts: &'a Counts,
    harness: Harness,
    session: SessionId,
    token: String,
    calls: u64,
}

impl<'a> Worker<'a> {
    fn connect(number: usize, daemon: &'a Daemon, counts: &'a Counts) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let harness = dial(&runtime, daemon).unwrap();
        let session = SessionId::new(&format!("soak-{number}")).unwrap();
        let mut worker = Self {
            runtime,
            daemon,
            counts,
            harness,
            session,
            token: String::new(),
            calls: 0,
        };
        worker.open(None).unwrap();
        worker
    }

    /// Opens the session, or takes it up again.
    fn open(&mut self, resume_token: Option<String>) -> Result<(), String> {
        let (session_id, workspace, env) = (self.session.clone(), None, None);
        self.send(
            &SessionOpen {
                session_id,
                workspace,
                env,
                resume_token,
            }
            .into(),
        )?;
        loop {
            match self.next()? {
                ToHarness::SessionOpened(opened) if opened.session_id == self.session => {
                    self.token = opened.resume_token;
                    self.counts.connections.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                ToHarness::ProtocolError(error) => return Err(error.message),
                // A result that was not acknowledged comes before everything else.
                ToHarness::ToolResult(result) => self.acknowledge_again(&result)?,
                _ => {}
            }
        }
    }

    /// Leaves a call running, loses the connection one way or the other, and gets the result on the next one.
    fn reconnect(&mut self, turn: u64) -> Result<(), String> {
        let id = self.start("bash", json!({"command": "sleep 0.2; echo late"}))?;
        let next = dial(&self.runtime, self.daemon)?;
        let last = std::mem::replace(&mut self.harness, next);
        if turn.is_multiple_of(2) {
            // The daemon may close first; either way it is closed.
            let _closed = self.runtime.block_on(last.close());
        } else {
            drop(last);
        }
        self.open(Some(self.token.clone()))?;
        check(&self.result(&id)?, "late\nexit_code: 0")?;
        // A session of one call, beside the one that stays.
        let lasting = std::mem::replace(&mut self.session, SessionId::new("soak-guest").unwrap());
        let guest = SessionId::new(&format!("{lasting}-guest-{turn}")).unwrap();
        self.session = guest.clone();
        let kept = self.token.clone();
        let done = self
            .call("bash", json!({"command": "sleep 300 & echo left"}))
            .map(drop);
        let closed = self.send(&SessionClose { session_id: guest }.into());
        (self.session, self.token) = (lasting, kept);
        done.and(closed)
    }

    /// One call of the mix.
    fn turn(&mut self, number: usize, turn: u64) -> Result<(), String> {
        let own = format!("own{number}");
        match turn % 16 {
            0 | 4 | 8 | 12 => {
                let (result, time) = self.call("bash", json!({"command": "true"}))?;
                self.counts.bash.lock().unwrap().push(time);
                check(&result, "exit_code: 0")
            }
            2 | 6 | 10 | 14 => {
                let (result, time) = self.call("read", json!({"path": "small"}))?;
                self.counts.read.lock().unwrap().push(time);
                check(&result, "four kibibytes\n")
            }
            1 => check(
                &self
                    .call("bash", json!({"command": "seq 20000; echo end >&2"}))?
                    .0,
                "1\n2\n",
            ),
            3 => check(
                &self
                    .call(
                        "write",
                        json!({"path": own, "content": format!("turn {turn}\n").repeat(800)}),
                    )?
                    .0,
                "Wrote",
            ),
            5 => {
                self.call("write", json!({"path": own, "content": "only here"}))?;
                check(
                    &self
                        .call(
                            "edit",
                            json!({"path": own, "old_string": "only", "new_string": "now"}),
                        )?
                        .0,
                    "Edited",
                )
            }
            7 => check(
                &self
                    .call("grep", json!({"pattern": "fn found", "glob": "*.rs"}))?
                    .0,
                "file0.rs:2:",
            ),
            9 => check(
                &self.call("glob", json!({"pattern": "*.rs"}))?.0,
                "file0.rs\n",
            ),
            11 => check(
                &self
                    .call("read", json!({"path": "large", "limit": 60_000}))?
                    .0,
                "one mebibyte",
            ),
            13 => {
                let id = self.start(
                    "bash",
                    json!({"command": "echo begun; sleep 300 & sleep 300"}),
                )?;
                let (session_id, tool_call_id, reason) = (self.session.clone(), id.clone(), None);
                self.send(
                    &ToolCancel {
                        session_id,
                        tool_call_id,
                        reason,
                    }
                    .into(),
                )?;
                let result = self.result(&id)?;
                let ended = result.outcome == Outcome::Cancelled;
                ended
                    .then_some(())
                    .ok_or_else(|| format!("not cancelled: {result:?}"))
            }
            _ => check(&self.call("list_files", json!({}))?.0, "\nfile0.rs\n"),
        }
    }

    fn call(&mut self, name: &str, input: Value) -> Result<(ToolResult, Duration), String> {
        let begun = Instant::now();
        let id = self.start(name, input)?;
        let result = self.result(&id)?;
        Ok((result, begun.elapsed()))
    }

    fn start(&mut self, name: &str, input: Value) -> Result<ToolCallId, String> {
        self.calls += 1;
        self.counts.calls.fetch_add(1, Ordering::Relaxed);
        let id = ToolCallId::new(&format!("c{}", self.calls)).unwrap();
        let Value::Object(input) = input else {
            return Err("an input is an object".to_owned());
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
        self.send(&call.into())?;
        Ok(id)
    }

    /// Waits for the result of a call; any other one may only be an earlier one that came again.
    fn result(&mut self, id: &ToolCallId) -> Result<ToolResult, String> {
        loop {
            match self.next()? {
                ToHarness::ToolResult(result) if result.tool_call_id == *id => {
                    self.acknowledge(&result)?;
                    return Ok(result);
                }
                ToHarness::ToolResult(result) => self.acknowledge_again(&result)?,
                ToHarness::ProtocolError(error) => return Err(error.message),
                _ => {}
            }
        }
    }

    fn acknowledge_again(&mut self, result: &ToolResult) -> Result<(), String> {
        self.counts.sent_again.fetch_add(1, Ordering::Relaxed);
        self.acknowledge(result)
    }

    fn acknowledge(&mut self, result: &ToolResult) -> Result<(), String> {
        let (session_id, tool_call_id) = (result.session_id.clone(), result.tool_call_id.clone());
        self.send(
            &ResultAck {
                session_id,
                tool_call_id,
            }
            .into(),
        )
    }

    fn send(&mut self, message: &ToExecutor) -> Result<(), String> {
        self.runtime
            .block_on(self.harness.send(message))
            .map_err(|error| error.to_string())
    }

    fn next(&mut self) -> Result<ToHarness, String> {
        let next = async { tokio::time::timeout(ANSWER, self.harness.next()).await };
        let next = self
            .runtime
            .block_on(next)
            .map_err(|_| format!("nothing came for {ANSWER:?}"))?;
        next.map_err(|error| error.to_string())
    }
}

fn dial(runtime: &Runtime, daemon: &Daemon) -> Result<Harness, String> {
    let target = Target::new(&daemon.url, None, None).unwrap();
    runtime
        .block_on(Harness::connect(&target))
        .map_err(|error| error.to_string())
}

/// Holds block 0 against what must be there.
fn check(result: &ToolResult, expected: &str) -> Result<(), String> {
    let text = serde_json::to_value(&result.content[0]).unwrap()["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if result.outcome == Outcome::Succeeded && text.contains(expected) {
        return Ok(());
    }
    let mut shown = String::new();
    write!(shown, "{result:?}").unwrap();
    shown.truncate(500);
    Err(format!("{expected:?} was expected, and came: {shown}"))
}
