//! The table of sessions: which exist, and which connection holds each.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::PeerId;
use super::kept::Kept;
use super::registry::{Bounds, Digest, Registry};
use crate::journal::SessionJournal;
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
    /// The largest message that its last holder took.
    pub(super) last_max_message_bytes: Option<usize>,
    /// The token that `session.opened` shows; none where it is known by its digest only.
    pub(super) resume_token: Option<String>,
    /// Digests of the tokens that the session may be taken up with.
    pub(super) tokens: Vec<Digest>,
    pub(super) journal: SessionJournal,
    pub(super) lost: Lost,
}

/// What a session had and a restart of the daemon has lost. Until it is given again, no new call of it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) env: bool,
    pub(super) workspace: bool,
}

impl Lost {
    /// Says what a harness must do, where anything is lost.
    pub(super) fn sentence(self) -> Option<&'static str> {
        match (self.workspace, self.env) {
            (true, _) => Some(
                "the executor was restarted and the directory of this session cannot be entered any more; send \
                 `session.open` with a `workspace`, or close the session; nothing was run",
            ),
            (false, true) => Some(
                "the executor was restarted and the variables of this session are lost, since they are never kept; \
                 send `session.open` with its `env` again; nothing was run",
            ),
            (false, false) => None,
        }
    }
}

impl Session {
    pub(super) fn new(
        workspace: Workspace,
        processes: SessionProcesses,
        journal: SessionJournal,
        limits: &Limits,
    ) -> Self {
        Self {
            workspace,
            processes,
            holder: None,
            registry: Registry::new(Bounds::from(limits)),
            calls: TaskTracker::new(),
            closing: false,
            released: None,
            last_max_message_bytes: None,
            resume_token: None,
            tokens: Vec::new(),
            journal,
            lost: Lost::default(),
        }
    }

    /// Says that it is open. Where its token is known by digest only, it gets a further one.
    pub(super) fn opened(
        &mut self,
        session_id: &SessionId,
    ) -> Result<SessionOpened, getrandom::Error> {
        let resume_token = if let Some(token) = &self.resume_token {
            token.clone()
        } else {
            let token = crate::secret::token()?;
            self.tokens.push(crate::secret::digest(&token));
            self.journal.token(crate::secret::digest(&token));
            self.resume_token.insert(token).clone()
        };
        Ok(SessionOpened {
            session_id: session_id.clone(),
            workspace: self.workspace.shown_root(),
            resume_token,
        })
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

    pub(super) fn all(&self) -> impl Iterator<Item = &Session> {
        self.open.values()
    }

    pub(super) fn ids(&self) -> Vec<SessionId> {
        self.open.keys().cloned().collect()
    }

    /// Returns what a harness must know to go on with each session.
    pub(super) fn resumable(&self) -> Vec<ResumableSession> {
        let each = self.open.iter().map(|(id, session)| ResumableSession {
            session_id: id.clone(),
            running: session.registry.running_ids(),
            unacked: session.registry.waiting_ids(),
        });
        each.collect()
    }

    /// Returns the sessions that have had no holder for too long, after forgetting what has aged in the others.
    pub(super) fn expired(&mut self, limits: &Limits, now: Instant) -> Vec<SessionId> {
        let mut expired = Vec::new();
        for (id, session) in &mut self.open {
            session.registry.expire(now);
            let ended = session
                .released
                .is_some_and(|since| now.saturating_duration_since(since) >= limits.session_ttl);
            if ended && !session.closing {
                expired.push(id.clone());
            }
        }
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
