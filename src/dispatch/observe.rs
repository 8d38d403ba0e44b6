//! What an operator may know of the hub: one log line and some counts for each call, and how much there is of everything.

use std::sync::Arc;
use std::time::Duration;

use super::answer::Answer;
use super::{Hub, Tool};
use crate::health::{Health, Phase};
use crate::metrics::Metrics;
use crate::wire::{ErrorCode, Outcome, SessionId, ToolCall, ToolCallId, TraceParent};
use crate::workspace::Workspace;

/// How much there is of what comes and goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Calls that were admitted and have no answer yet.
    pub running_calls: usize,
    /// Open sessions.
    pub sessions: usize,
    /// Harness connections.
    pub connections: usize,
    /// Background processes of all sessions, as last counted.
    pub background_processes: usize,
    /// Bytes of results that are kept.
    pub kept_result_bytes: usize,
}

/// A call at its end, without anything that a peer or a tool wrote but its ids.
#[derive(Debug)]
pub(super) struct Ended<'a> {
    pub(super) session: &'a SessionId,
    pub(super) call: &'a ToolCallId,
    pub(super) tool: Option<Tool>,
    pub(super) outcome: Outcome,
    pub(super) is_error: bool,
    pub(super) error: Option<ErrorCode>,
    pub(super) cause: Option<&'static str>,
    /// From receipt to the end.
    pub(super) took: Duration,
    /// From receipt to the first step of its work.
    pub(super) queued: Duration,
    /// Size of the encoded result, where it was kept.
    pub(super) bytes: Option<usize>,
    pub(super) trace: Option<&'a TraceParent>,
}

impl Hub {
    /// Returns the counters of this daemon.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }

    /// Returns the health of this daemon.
    pub fn health(&self) -> &Arc<Health> {
        &self.0.health
    }

    /// Returns the root workspace.
    pub fn workspace(&self) -> &Workspace {
        &self.0.rooms.workspace
    }

    /// Counts what comes and goes.
    pub fn amounts(&self) -> Amounts {
        let slots = self.0.slots.available_permits();
        let mut amounts = Amounts {
            running_calls: self.0.limits.max_concurrent_calls.saturating_sub(slots),
            kept_result_bytes: self.0.kept_bytes.load(std::sync::atomic::Ordering::Relaxed),
            ..Amounts::default()
        };
        let mut state = self.state();
        amounts.connections = state.peers.len();
        amounts.sessions = state.sessions.len();
        state.sessions.each_mut(|_, session| {
            amounts.background_processes += session.processes.background();
        });
        amounts
    }

    /// Says that no further calls are taken.
    pub(super) fn note_stop(&self) {
        self.0.health.set_phase(Phase::Stopping);
    }

    /// Counts and logs a call of which only the ids could be read.
    pub(super) fn note_invalid(&self, session: &SessionId, call: &ToolCallId, answer: &Answer) {
        self.note_end(&Ended {
            session,
            call,
            tool: None,
            outcome: answer.outcome(),
            is_error: true,
            error: answer.code(),
            cause: None,
            took: Duration::ZERO,
            queued: Duration::ZERO,
            bytes: None,
            trace: None,
        });
    }

    /// Counts and logs a call that was answered without being run.
    pub(super) fn note_refused(&self, call: &ToolCall, answer: &Answer, took: Duration) {
        self.note_end(&Ended {
            session: &call.session_id,
            call: &call.tool_call_id,
            tool: Tool::from_name(&call.name),
            outcome: answer.outcome(),
            is_error: true,
            error: answer.code(),
            cause: None,
            took,
            queued: Duration::ZERO,
            bytes: None,
            trace: call.traceparent.as_ref(),
        });
    }

    /// Counts and logs a call at its end.
    pub(super) fn note_end(&self, ended: &Ended<'_>) {
        let metrics = self.metrics();
        if let Some(calls) = metrics.tool(ended.tool.map(Tool::number)) {
            calls.ended(ended.outcome, ended.is_error, ended.took);
        }
        if ended.outcome == Outcome::Failed
            && let Some(code) = ended.error
        {
            metrics.refused(code);
        }
        let queued = ms(ended.queued);
        tracing::info!(
            session = %ended.session,
            call = %ended.call,
            // Only a known name reaches the log: an unknown one is the peer's text.
            tool = ended.tool.map_or("unknown", Tool::name),
            outcome = ended.outcome.name(),
            is_error = ended.is_error,
            error = ended.error.map(ErrorCode::name),
            cause = ended.cause,
            duration_ms = ms(ended.took),
            queued_ms = (queued > 0).then_some(queued),
            bytes = ended.bytes,
            trace_id = ended.trace.map(TraceParent::trace_id),
            parent_id = ended.trace.map(TraceParent::parent_id),
            "call ended"
        );
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
