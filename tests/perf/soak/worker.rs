//! One harness of the run: it calls, checks what comes, and comes back on another connection.

use std::fmt::Write as _;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bma_executor::harness::Harness;
use bma_executor::net::Target;
use bma_executor::wire::{
    Outcome, ResultAck, SessionClose, SessionId, SessionOpen, ToExecutor, ToHarness, ToolCall,
    ToolCallId, ToolCancel, ToolResult,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::Counts;
use super::daemon::Daemon;

/// How long a connection lives.
const CONNECTION: Duration = Duration::from_secs(5);

/// Pause of a harness after each call: a model thinks longer, and the machine has others to serve.
const PAUSE: Duration = Duration::from_millis(5);

/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_mins(1);

/// One harness: calls, until told to stop; what goes wrong ends it and is kept.
pub(super) fn work(
    number: usize,
    daemon: &Daemon,
    counts: &Counts,
    gate: &RwLock<()>,
    stop: &AtomicBool,
) {
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
