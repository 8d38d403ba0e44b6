//! One admitted call, from its input to its one answer.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use super::answer::Answer;
use super::call_progress::{CallProgress, ProgressEnd};
use super::observe::Ended;
use super::registry::Digest;
use super::session::Session;
use super::toolbox::{Pace, Tool, ToolInput};
use super::{Hub, Peer};
use crate::journal::SessionJournal;
use crate::near::Near;
use crate::process::SessionProcesses;
use crate::progress::Progress;
use crate::stop::{Stop, StopCause};
use crate::tools::{Ctx, ToolOutput};
use crate::wire::{
    CapabilitiesUpdate, Decision, ErrorCode, SessionId, ToolCall, ToolCallId, TraceParent,
};
use crate::workspace::Workspace;

/// What the call's session lends it.
pub(super) struct Work {
    pub(super) workspace: Workspace,
    pub(super) processes: SessionProcesses,
    pub(super) max_result_bytes: usize,
    /// The connection's thread, where the call begins there.
    pub(super) near: Option<Near>,
}

impl Work {
    /// Borrows from a session for a call that came over a connection.
    pub(super) fn of(session: &Session, peer: &Peer) -> Self {
        Self {
            workspace: session.workspace.clone(),
            processes: session.processes.clone(),
            max_result_bytes: peer.terms().max_message_bytes,
            near: None,
        }
    }
}

/// When a call must have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deadline {
    /// Never, or too far away to be a point in time.
    Never,
    /// Then.
    At(Instant),
    /// Before it came.
    Passed,
}

/// The promise of exactly one answer. Dropped without one, as by a panic, it answers `internal`.
pub(super) struct Ticket {
    hub: Hub,
    session_id: SessionId,
    tool_call_id: ToolCallId,
    tool: Option<Tool>,
    trace: Option<TraceParent>,
    stop: Stop,
    progress_end: ProgressEnd,
    received: Instant,
    /// When its work began.
    begun: Option<Instant>,
    slot: Option<OwnedSemaphorePermit>,
    note: Note,
}

/// Where a call is noted for the next daemon, and as what.
pub(super) struct Note {
    pub(super) journal: SessionJournal,
    pub(super) digest: Digest,
}

impl Ticket {
    pub(super) fn new(
        hub: Hub,
        call: &ToolCall,
        stop: Stop,
        slot: OwnedSemaphorePermit,
        received: Instant,
        note: Note,
    ) -> Self {
        Self {
            hub,
            session_id: call.session_id.clone(),
            tool_call_id: call.tool_call_id.clone(),
            tool: Tool::from_name(&call.name),
            trace: call.traceparent.clone(),
            stop,
            progress_end: ProgressEnd::default(),
            received,
            begun: None,
            slot: Some(slot),
            note,
        }
    }

    /// Returns how long the call may take of its connection's own time.
    pub(super) fn pace(&self) -> Pace {
        let toolbox = &self.hub.0.rooms.toolbox;
        self.tool.map_or(Pace::Long, |tool| toolbox.pace(tool))
    }

    /// Runs the call and answers it.
    pub(super) async fn run(
        mut self,
        call: ToolCall,
        work: Work,
        offer: &CapabilitiesUpdate,
        deadline: Deadline,
    ) {
        self.begun = Some(Instant::now());
        let answer = match (prepare(call, offer), self.stop.cause()) {
            (Err(refused), _) => *refused,
            (Ok(_), Some(cause)) => Answer::stopped_before(cause),
            (Ok(_), None) if deadline == Deadline::Passed => {
                Answer::stopped_before(StopCause::Deadline)
            }
            (Ok(input), None) => Answer::from_output(self.work(input, work, deadline).await),
        };
        self.answer(answer);
    }

    /// Runs the tool; the deadline gives its stop signal, and the tool then returns what it has.
    async fn work(&self, input: ToolInput, work: Work, deadline: Deadline) -> ToolOutput {
        let (hub, session_id) = (self.hub.clone(), self.session_id.clone());
        let outbox = move || hub.holder(&session_id).map(|peer| Arc::clone(&peer.outbox));
        let sink = CallProgress::new(
            self.session_id.clone(),
            self.tool_call_id.clone(),
            &self.progress_end,
            Arc::clone(self.hub.metrics()),
            outbox,
        );
        let ctx = Ctx {
            workspace: work.workspace,
            processes: work.processes,
            stop: self.stop.clone(),
            progress: Progress::new(Arc::new(sink)),
            limits: Arc::clone(&self.hub.0.limits),
            max_result_bytes: work.max_result_bytes,
            near: work.near,
        };
        let mut tool = self.hub.0.rooms.toolbox.run(ctx, input);
        // Where a first step that changes nothing is the last one, the end says all that the beginning would, by one write less.
        if self.pace() == Pace::AtAGlance
            && let Poll::Ready(output) = poll_fn(|cx| Poll::Ready(tool.as_mut().poll(cx))).await
        {
            return output;
        }
        self.note
            .journal
            .started(&self.tool_call_id, &self.note.digest);
        let Deadline::At(deadline) = deadline else {
            return tool.await;
        };
        let mut deadline = pin!(sleep_until(deadline));
        tokio::select! {
            biased; // A tool that is always ready must not outlive its deadline.
            () = &mut deadline => {}
            output = &mut tool => return output,
        }
        self.stop.trigger(StopCause::Deadline);
        tool.await
    }

    fn answer(mut self, answer: Answer) {
        self.send(answer);
    }

    fn send(&mut self, answer: Answer) {
        let Some(slot) = self.slot.take() else { return };
        self.progress_end.end();
        let (outcome, is_error) = (answer.outcome(), answer.is_error());
        let (error, cause) = (answer.code(), answer.cause());
        let result = answer.into_result(self.session_id.clone(), self.tool_call_id.clone());
        let Note { journal, digest } = &self.note;
        let bytes = self.hub.deliver(result, journal, digest, slot);
        let begun = self.begun.unwrap_or(self.received);
        self.hub.note_end(&Ended {
            session: &self.session_id,
            call: &self.tool_call_id,
            tool: self.tool,
            outcome,
            is_error,
            error,
            cause,
            took: self.received.elapsed(),
            queued: begun.saturating_duration_since(self.received),
            bytes: Some(bytes),
            trace: self.trace.as_ref(),
        });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.send(Answer::failed(
            ErrorCode::Internal,
            "the executor failed while it ran this call; what the call did is in the workspace, why is in the executor's log",
        ));
    }
}

/// Finds the tool, asks whether it may run, and types its input.
fn prepare(call: ToolCall, offer: &CapabilitiesUpdate) -> Result<ToolInput, Box<Answer>> {
    let Some(tool) = Tool::from_name(&call.name) else {
        let known: Vec<&str> = Tool::ALL.iter().map(|tool| tool.name()).collect();
        let name: String = call.name.chars().take(64).collect();
        return Err(refused(
            ErrorCode::UnknownTool,
            format!(
                "there is no tool `{name}`; the tools are {}",
                known.join(", ")
            ),
        ));
    };
    if !offer
        .tools
        .iter()
        .any(|entry| entry.name == tool.name() && entry.available)
    {
        return Err(refused(
            ErrorCode::ToolNotOffered,
            format!("Tool not offered: {}", tool.name()),
        ));
    }
    let input = tool
        .decode(call.input)
        .map_err(|error| refused(ErrorCode::InvalidInput, format!("{}: {error}", tool.name())))?;
    match call
        .permission
        .map(|permission| (permission.decision, permission.reason))
    {
        None | Some((Decision::Allow, _)) => Ok(input),
        Some((Decision::Deny, reason)) => Err(refused(
            ErrorCode::PermissionDenied,
            format!(
                "this call was denied: {}",
                reason.as_deref().unwrap_or("no reason was given")
            ),
        )),
        Some((Decision::Ask, _)) => Err(refused(
            ErrorCode::PermissionDenied,
            "this call needs approval, and no approval command is configured here",
        )),
    }
}

fn refused(code: ErrorCode, message: impl Into<String>) -> Box<Answer> {
    Box::new(Answer::failed(code, message))
}
