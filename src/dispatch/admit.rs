//! Whether a call may run, decided without waiting.
//!
//! A permit is taken for as long as the call runs, and a call is taken in only where the connection has room for its
//! answer, so that the answer can be queued without waiting. A peer that does not read is refused further calls; others are not.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::answer::Answer;
use super::registry::{Admission, Digest};
use super::run::{Deadline, Note, Ticket, Work};
use super::{Connection, Hub, State};
use crate::stop::Stop;
use crate::wire::{
    DeadlineMs, ErrorCode, ProtocolError, SessionId, ToolCall, ToolCallId, ToolResult,
};

/// When a refused harness should try again: a slot of a quick call is free by then.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Said to a harness that does not acknowledge.
const FULL: &str = "too many results of this session wait for their `tool.result.ack`; acknowledge them; nothing was run";

impl Connection {
    /// Runs a call, or answers why not.
    pub(super) fn admit(&self, call: ToolCall) {
        let received = Instant::now();
        let digest = digest(&call);
        let hub = &self.hub;
        let mut state = hub.state();
        let refuse = |code, message: String, retry: Option<Duration>| {
            let answer = Answer::failed(code, message).retry_after(retry);
            hub.note_refused(&call, &answer, received.elapsed());
            let result = answer.into_result(call.session_id.clone(), call.tool_call_id.clone());
            self.outbox().control(ToolResult::from(result));
        };
        if state.stopping {
            return refuse(
                ErrorCode::ShuttingDown,
                "the executor stops and takes no calls".to_owned(),
                None,
            );
        }
        if let Err(refused) = hub.session_for_call(&mut state, self.id, &call.session_id) {
            return refuse(refused.code, refused.message, None);
        }
        let stop = Stop::new();
        self.make_room_for(&mut state, &call.session_id);
        let has_memory = hub.has_memory(&mut state);
        let Some(session) = state.sessions.get_mut(&call.session_id) else {
            return;
        };
        let admission = session
            .registry
            .admit(&call.tool_call_id, digest, stop.clone(), received);
        match admission {
            Admission::New => {}
            Admission::Full => {
                return refuse(ErrorCode::Overloaded, FULL.to_owned(), Some(RETRY_AFTER));
            }
            Admission::Attached => return,
            Admission::Finished(kept) => return hub.send_again(&self.peer, &call, &kept),
            Admission::Conflict => {
                hub.metrics().refused(ErrorCode::DuplicateCallId);
                return self
                    .outbox()
                    .control(duplicate(call.session_id, call.tool_call_id));
            }
        }
        if let Some(message) = session.lost.sentence() {
            session.registry.withdraw(&call.tool_call_id);
            return refuse(ErrorCode::SessionClosed, message.to_owned(), None);
        }
        let slot = Arc::clone(&hub.0.slots).try_acquire_owned().ok();
        let Some(slot) = slot.filter(|_| self.outbox().has_room() && has_memory) else {
            // Not remembered: sent again, it may run.
            session.registry.withdraw(&call.tool_call_id);
            let message = hub.why_overloaded(self.outbox().has_room(), has_memory);
            return refuse(ErrorCode::Overloaded, message, Some(RETRY_AFTER));
        };
        let tracker = session.calls.clone();
        let note = Note {
            journal: session.journal.clone(),
            digest,
        };
        let mut work = Work::of(session, &self.peer);
        if state
            .early_cancels
            .take(&call.session_id, &call.tool_call_id, received)
        {
            stop.trigger(crate::stop::StopCause::Cancelled);
        }
        let offer = Arc::clone(&state.offer);
        drop(state);
        let deadline = deadline(call.deadline_ms, received);
        let ticket = Ticket::new(hub.clone(), &call, stop, slot, received, note);
        let token = tracker.token();
        let pace = ticket.pace();
        work.near = self.near(pace);
        let near = work.near.clone();
        let run = async move {
            ticket.run(call, work, &offer, deadline).await;
            drop(token);
        };
        self.start(run, pace, near);
    }
}

impl Connection {
    /// Where a session can remember no further call, lets what was written for a harness that acknowledges nothing count
    /// as delivered.
    fn make_room_for(&self, state: &mut State, session: &SessionId) {
        let full = state
            .sessions
            .get(session)
            .is_some_and(|session| session.registry.is_full());
        if full && !self.peer.terms().acks {
            self.hub
                .settle_written(state, session, Duration::ZERO, false);
        }
    }
}

impl Hub {
    /// Whether there is room for another result that no harness has; what was delivered makes room for it.
    fn has_memory(&self, state: &mut State) -> bool {
        let has_room = || self.0.accounts.bytes() < self.0.limits.result_memory_bytes;
        if !has_room() {
            self.give_up_delivered(&mut state.sessions, &mut state.ages);
        }
        has_room()
    }

    fn why_overloaded(&self, peer_reads: bool, has_memory: bool) -> String {
        let why = if !peer_reads {
            "this harness has not read the results that are waiting for it".to_owned()
        } else if !has_memory {
            "the memory for unread results is full".to_owned()
        } else {
            format!(
                "{} calls are running, which is the limit",
                self.0.limits.max_concurrent_calls
            )
        };
        format!("{why}; nothing was run, try again later")
    }
}

/// Takes a deadline as it is at receipt.
fn deadline(given: Option<DeadlineMs>, received: Instant) -> Deadline {
    let Some(given) = given else {
        return Deadline::Never;
    };
    match given.left_ms(now_ms()) {
        None => Deadline::Passed,
        Some(left) => {
            let at = received.checked_add(Duration::from_millis(left));
            at.map_or(Deadline::Never, Deadline::At)
        }
    }
}

/// Digests what a call asks for; members in another order give the same digest.
fn digest(call: &ToolCall) -> Digest {
    let mut hash = Hasher(Sha256::new());
    // The map is ordered by name, so equal values are spelled alike.
    if let Err(error) = serde_json::to_writer(&mut hash, &(&call.name, &call.input)) {
        tracing::error!(%error, "an input could not be digested");
    }
    hash.0.finalize().into()
}

struct Hasher(Sha256);

impl std::io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(super) fn duplicate(session_id: SessionId, tool_call_id: ToolCallId) -> ProtocolError {
    ProtocolError {
        code: ErrorCode::DuplicateCallId,
        message: "this `tool_call_id` belongs to a call with another name or input; use a new id"
            .to_owned(),
        session_id: Some(session_id),
        tool_call_id: Some(tool_call_id),
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
