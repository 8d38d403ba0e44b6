//! The table of sessions: which exist, and which connection holds each.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::PeerId;
use super::deliver::Kept;
use super::registry::{Bounds, Registry};
use crate::limits::Limits;
use crate::process::SessionProcesses;
use crate::stop::{Stop, StopCause};
use crate::wire::{ErrorCode, ProtocolError, ResumableSession, SessionId, SessionOpened};
use crate::workspace::Workspace;

/// One session. It outlives its connections.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) workspace: Workspace,
    pub(super) processes: SessionProcesses,
    pub(super) holder: Option<PeerId>,
    pub(super) registry: Registry<Stop, Kept>,
    pub(super) calls: TaskTracker,
    /// Set by `session.close`: no further calls, and gone once the last has ended.
    pub(super) closing: bool,
    /// Since when it has had no holder.
    pub(super) released: Option<Instant>,
    pub(super) resume_token: String,
}

impl Session {
    pub(super) fn new(
        workspace: Workspace,
        processes: SessionProcesses,
        holder: PeerId,
        resume_token: String,
        limits: &Limits,
    ) -> Self {
        Self {
            workspace,
            processes,
            holder: Some(holder),
            registry: Registry::new(Bounds::from(limits)),
            calls: TaskTracker::new(),
            closing: false,
            released: None,
            resume_token,
        }
    }

    pub(super) fn opened(&self, session_id: &SessionId) -> SessionOpened {
        SessionOpened {
            session_id: session_id.clone(),
            workspace: self.workspace.shown_root(),
            resume_token: self.resume_token.clone(),
        }
    }

    pub(super) fn stop_all(&self, cause: StopCause) {
        for stop in self.registry.running() {
            stop.trigger(cause);
        }
    }
}

/// Why a connection cannot use a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionRefused {
    pub(super) code: ErrorCode,
    pub(super) message: String,
}

impl SessionRefused {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

/// All sessions, and the ids that were closed and must be opened before they are used again.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: BTreeMap<SessionId, Session>,
    closed: VecDeque<SessionId>,
}

impl Sessions {
    /// Whether the id was closed and not opened again.
    pub(super) fn is_closed(&self, id: &SessionId) -> bool {
        self.closed.contains(id)
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn insert(&mut self, id: &SessionId, session: Session) {
        self.closed.retain(|closed| closed != id);
        self.open.insert(id.clone(), session);
    }

    pub(super) fn get(&self, id: &SessionId) -> Option<&Session> {
        self.open.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &SessionId) -> Option<&mut Session> {
        self.open.get_mut(id)
    }

    pub(super) fn ids(&self) -> Vec<SessionId> {
        self.open.keys().cloned().collect()
    }

    pub(super) fn each_mut(&mut self, mut each: impl FnMut(&SessionId, &mut Session)) {
        for (id, session) in &mut self.open {
            each(id, session);
        }
    }

    /// Returns what a harness must know to go on with each session.
    pub(super) fn resumable(&mut self) -> Vec<ResumableSession> {
        let mut resumable = Vec::new();
        self.each_mut(|id, session| {
            let mut unacked = Vec::new();
            session.registry.each_result(|call, kept| {
                if !kept.is_delivered() {
                    unacked.push(call.clone());
                }
            });
            let running = session.registry.running_ids();
            resumable.push(ResumableSession {
                session_id: id.clone(),
                running,
                unacked,
            });
        });
        resumable
    }

    /// Returns the sessions that have had no holder for too long, after forgetting what has aged in the others.
    pub(super) fn expired(&mut self, limits: &Limits, now: Instant) -> Vec<SessionId> {
        let mut expired = Vec::new();
        self.each_mut(|id, session| {
            session.registry.expire(now);
            let ended = session
                .released
                .is_some_and(|since| now.saturating_duration_since(since) >= limits.session_ttl);
            if ended && !session.closing {
                expired.push(id.clone());
            }
        });
        expired
    }

    pub(super) fn remove(&mut self, id: &SessionId, limits: &Limits) -> Option<Session> {
        if self.closed.len() >= limits.max_sessions {
            self.closed.pop_front();
        }
        self.closed.push_back(id.clone());
        self.open.remove(id)
    }
}

impl From<&Limits> for Bounds {
    fn from(limits: &Limits) -> Self {
        Self {
            finished: limits.max_finished_calls,
            finished_ttl: limits.finished_ttl,
        }
    }
}

impl SessionRefused {
    /// Shapes the refusal of a message that is not a call.
    pub(super) fn into_protocol_error(self, session_id: SessionId) -> ProtocolError {
        ProtocolError {
            code: self.code,
            message: self.message,
            session_id: Some(session_id),
            tool_call_id: None,
        }
    }
}
