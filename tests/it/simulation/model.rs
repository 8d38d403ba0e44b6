//! What the harness knows of its calls, and which answers are allowed to come.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bma_executor::dispatch::Harnesses;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::WebSocket;

use super::daemon::{Execution, Ledger, Work};
use super::line::{HarnessEnd, Line};

/// A message that was sent: on which connection, and how far it reaches in its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// The connection.
    pub connection: usize,
    /// The end of the message.
    pub offset: u64,
}

/// A session, as the harness knows it.
#[derive(Debug)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// The newest token that has arrived.
    pub token: Option<String>,
    /// Whether its close was sent.
    pub closed: bool,
}

/// A call, as the harness knows it.
#[derive(Debug)]
pub struct Call {
    /// Its session.
    pub session: usize,
    /// Its id.
    pub id: String,
    /// What it asks for.
    pub work: Work,
    /// Its `deadline_ms`.
    pub deadline: Option<u64>,
    /// Whether its input is one that no tool takes, or it is denied.
    pub refused: Option<&'static str>,
    /// Each time that it was sent.
    pub sent: Vec<Sent>,
    /// Each time that another input was sent under its id.
    pub others: Vec<Sent>,
    /// Whether a cancel was sent.
    pub cancelled: bool,
    /// The answer, once it has come.
    pub answer: Option<Value>,
    /// Its first acknowledgement that the executor must heed.
    pub ack: Option<Sent>,
}

/// A connection, as the harness knows it.
#[derive(Debug)]
pub struct Connection {
    /// The harness's end, until it has given it up.
    pub socket: Option<WebSocket<HarnessEnd>>,
    /// The line below.
    pub line: Line,
    /// The executor's side; taken where the next connection waits for it.
    pub task: Option<JoinHandle<bma_executor::net::End>>,
    /// When the hub took it in.
    pub attached: Arc<OnceLock<Instant>>,
    /// Messages that may give it a session, by session.
    pub takes: Vec<(usize, Sent)>,
    /// The sessions that it has been told it holds.
    pub holds: Vec<usize>,
    /// Answers that came on it, by call.
    pub answers: BTreeMap<usize, usize>,
    /// The last progress of each call.
    pub progress: BTreeMap<usize, u64>,
}

impl Connection {
    /// Whether the executor has not yet ended it.
    pub fn is_served(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }
}

/// Everything that is known about one schedule.
#[derive(Debug)]
pub struct Model {
    /// How many harnesses the executor knows.
    pub harnesses: Harnesses,
    /// Whether the harness acknowledges nothing.
    pub v1: bool,
    /// The sessions.
    pub sessions: Vec<Session>,
    /// The calls.
    pub calls: Vec<Call>,
    /// The connections, oldest first.
    pub connections: Vec<Connection>,
    /// When each life of the executor ended.
    pub killed: Vec<Instant>,
    /// When the executor began to stop in order.
    pub stops: Vec<Instant>,
    /// What the tools did.
    pub ledger: Ledger,
}

impl Model {
    /// Finds a call by the ids in a message.
    pub fn find(&self, params: &Value) -> Option<usize> {
        self.calls.iter().position(|call| {
            params["tool_call_id"] == *call.id
                && params["session_id"] == *self.sessions[call.session].id
        })
    }

    /// What the tools did to a call.
    pub fn execution(&self, call: usize) -> Execution {
        let ledger = self.ledger.lock().unwrap();
        ledger
            .get(&self.calls[call].work.key)
            .cloned()
            .unwrap_or_default()
    }

    fn taken_at(&self, sent: Sent) -> Option<Instant> {
        self.connections[sent.connection].line.taken_at(sent.offset)
    }

    /// The earliest time at which a call may have had its answer.
    fn answered_at(&self, call: usize) -> Option<Instant> {
        let execution = self.execution(call);
        if execution.starts == 0 {
            let sent = self.calls[call].sent.iter();
            return sent.filter_map(|sent| self.taken_at(*sent)).min();
        }
        execution
            .end
            .or_else(|| self.killed.get(execution.daemon).copied())
    }

    /// When the executor has heeded the acknowledgement of a call, if it must have.
    fn acked_at(&self, call: usize) -> Option<Instant> {
        let ack = self.calls[call].ack?;
        let at = self.taken_at(ack)?;
        let rival = self.connections.iter().skip(ack.connection + 1);
        let contested = rival
            .filter_map(|rival| rival.attached.get())
            .any(|attached| *attached <= at);
        // After its close frame a stopping executor reads nothing any more.
        let stopping = self.stops.iter().any(|begun| {
            let end = self.killed.iter().find(|end| *end >= begun);
            *begun <= at && end.is_none_or(|end| at <= *end)
        });
        (!contested && !stopping).then_some(at)
    }

    /// How many answers to a call may have come on a connection by now.
    ///
    /// One where it ended while the connection was there, one for each time that its session was given to the
    /// connection after it had ended and before it was acknowledged, and one for each time that it was sent again.
    pub fn allowed_answers(&self, call: usize, connection: usize) -> usize {
        let Some(ended) = self.answered_at(call) else {
            return 0;
        };
        let acked = self.acked_at(call);
        let after = |at: Instant| at >= ended;
        let unacked = |at: Instant| acked.is_none_or(|acked| at <= acked);
        let it = &self.connections[connection];
        let attached = it.attached.get().copied();
        let ends = usize::from(attached.is_some_and(|at| at <= ended));
        let adopts =
            self.harnesses == Harnesses::One && attached.is_some_and(|at| after(at) && unacked(at));
        let takes = it.takes.iter().filter(|(session, sent)| {
            *session == self.calls[call].session
                && self
                    .taken_at(*sent)
                    .is_some_and(|at| after(at) && unacked(at))
        });
        let again = self.calls[call].sent.iter().filter(|sent| {
            sent.connection == connection && self.taken_at(**sent).is_some_and(after)
        });
        ends + usize::from(adopts) + takes.count() + again.count()
    }

    /// Says what is wrong with the substance of an answer.
    pub fn fault_of(&self, call: usize, answer: &Value) -> Option<String> {
        let it = &self.calls[call];
        let execution = self.execution(call);
        let outcome = answer["outcome"].as_str().unwrap();
        let code = answer["error"]["code"].as_str().unwrap_or_default();
        let text = answer["content"][0]["text"].as_str().unwrap();
        let closed = self.sessions[it.session].closed;
        let expected = match (outcome, code) {
            ("succeeded", "") => {
                execution.end.is_some() && text == it.work.text() && !it.work.panics
            }
            ("cancelled", "cancelled") => it.cancelled,
            ("cancelled", "session_closed") => closed,
            ("cancelled", "shutting_down") => !self.stops.is_empty(),
            ("timed_out", "deadline_exceeded") => it.deadline.is_some(),
            ("unknown", "outcome_unknown") => execution.end.is_none() && !self.killed.is_empty(),
            ("failed", "internal") => it.work.panics && execution.starts == 1,
            ("failed", "result_too_large") => it.work.bytes > 60_000,
            ("failed", code) => it.refused == Some(code) && execution.starts == 0,
            _ => false,
        };
        if !expected {
            return Some(format!(
                "this answer cannot be: {outcome} {code}; the tools did {execution:?}"
            ));
        }
        let before = it.answer.as_ref()?;
        let replaced = code == "result_too_large";
        let same = ["outcome", "is_error", "content", "error"]
            .iter()
            .all(|member| before[*member] == answer[*member]);
        (!same && !replaced).then(|| format!("another answer than before: {before}"))
    }
}
