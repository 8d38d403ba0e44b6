//! The table of sessions: which exist, and which connection holds each.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use tokio_util::task::TaskTracker;

use super::deliver::Kept;
use super::registry::{Bounds, Registry};
use super::{Hub, PeerId, State};
use crate::limits::Limits;
use crate::process::SessionProcesses;
use crate::stop::{Stop, StopCause};
use crate::wire::{
    CloseReason, ErrorCode, ProtocolError, SessionClose, SessionClosed, SessionId, SessionOpen,
    SessionOpened,
};
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
    closing: bool,
    /// Since when it has had no holder.
    released: Option<Instant>,
    resume_token: String,
}

impl Session {
    fn opened(&self, session_id: &SessionId) -> SessionOpened {
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
    open: HashMap<SessionId, Session>,
    closed: VecDeque<SessionId>,
}

impl Sessions {
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

    /// Leaves the sessions of a connection that is gone without a holder.
    pub(super) fn release_all(&mut self, peer: PeerId) {
        self.each_mut(|_, session| {
            if session.holder == Some(peer) {
                session.holder = None;
                session.released = Some(Instant::now());
            }
        });
    }

    /// Returns the sessions that have had no holder for too long, after forgetting what has aged in the others.
    fn expired(&mut self, limits: &Limits, now: Instant) -> Vec<SessionId> {
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

    fn remove(&mut self, id: &SessionId, limits: &Limits) -> Option<Session> {
        if self.closed.len() >= limits.max_sessions {
            self.closed.pop_front();
        }
        self.closed.push_back(id.clone());
        self.open.remove(id)
    }
}

impl Hub {
    /// Makes sure that `peer` holds the session of a call, opening it on the root workspace where it is new.
    pub(super) fn session_for_call(
        &self,
        state: &mut State,
        peer: PeerId,
        id: &SessionId,
    ) -> Result<(), SessionRefused> {
        let Some(session) = state.sessions.get(id) else {
            if state.sessions.closed.contains(id) {
                return Err(SessionRefused::new(
                    ErrorCode::SessionClosed,
                    "this session was closed; send `session.open` to use its id again",
                ));
            }
            let workspace = self.0.workspace.clone();
            self.insert_session(state, peer, id, workspace, Vec::new())?;
            self.announce(state, peer, id, false);
            return Ok(());
        };
        match session.holder {
            _ if session.closing => Err(SessionRefused::new(
                ErrorCode::SessionClosed,
                "this session is being closed; send `session.open` to use its id again",
            )),
            Some(holder) if holder == peer => Ok(()),
            Some(_) => Err(in_use()),
            None => {
                self.hand_over(state, peer, id);
                self.announce(state, peer, id, false);
                Ok(())
            }
        }
    }

    /// Acts on `session.open`.
    pub(super) fn open_session(
        &self,
        peer: PeerId,
        open: SessionOpen,
    ) -> Result<(), SessionRefused> {
        let id = open.session_id;
        let mut state = self.state();
        let Some(session) = state.sessions.get(&id) else {
            let workspace = match &open.workspace {
                // A few system calls on a local directory; the order of this connection's messages
                // would be lost if they were made elsewhere.
                Some(path) => self.0.workspace.below(path).map_err(|error| {
                    SessionRefused::new(ErrorCode::InvalidInput, format!("`workspace`: {error}"))
                })?,
                None => self.0.workspace.clone(),
            };
            let env = open.env.unwrap_or_default();
            let env = env
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect();
            self.insert_session(&mut state, peer, &id, workspace, env)?;
            self.announce(&state, peer, &id, true);
            return Ok(());
        };
        let shown = open.resume_token.as_deref();
        let token_fits =
            shown.is_some_and(|token| crate::secret::equal(token, &session.resume_token));
        match session.holder {
            _ if session.closing => {
                return Err(SessionRefused::new(
                    ErrorCode::SessionInUse,
                    "this session is still being closed; open it after `session.closed`",
                ));
            }
            Some(holder) if holder == peer => {}
            Some(holder) if token_fits => {
                if let Some(old) = state.peers.get(&holder) {
                    old.outbox.control(SessionClosed {
                        session_id: id.clone(),
                        reason: CloseReason::TakenOver,
                        processes_killed: 0,
                    });
                }
                self.hand_over(&mut state, peer, &id);
            }
            None if token_fits || shown.is_none() => self.hand_over(&mut state, peer, &id),
            Some(_) | None => return Err(in_use()),
        }
        self.announce(&state, peer, &id, true);
        Ok(())
    }

    fn insert_session(
        &self,
        state: &mut State,
        peer: PeerId,
        id: &SessionId,
        workspace: Workspace,
        env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    ) -> Result<(), SessionRefused> {
        let limits = &self.0.limits;
        if state.sessions.open.len() >= limits.max_sessions {
            return Err(SessionRefused::new(
                ErrorCode::Overloaded,
                format!(
                    "{} sessions are open, which is the limit; close one",
                    limits.max_sessions
                ),
            ));
        }
        let resume_token = crate::secret::token().map_err(|error| {
            tracing::error!(%error, "no random bytes for a resume token");
            SessionRefused::new(ErrorCode::Internal, "the kernel gave no random bytes")
        })?;
        let session = Session {
            workspace,
            processes: self.0.processes.session(env),
            holder: Some(peer),
            registry: Registry::new(Bounds::from(&**limits)),
            calls: TaskTracker::new(),
            closing: false,
            released: None,
            resume_token,
        };
        state.sessions.closed.retain(|closed| closed != id);
        state.sessions.open.insert(id.clone(), session);
        Ok(())
    }

    /// Makes `peer` the holder of a session, and queues what the last holder may not have got.
    fn hand_over(&self, state: &mut State, peer: PeerId, id: &SessionId) {
        if let Some(session) = state.sessions.get_mut(id) {
            session.holder = Some(peer);
            session.released = None;
        }
        self.redeliver(state, peer, id);
    }

    /// Says that a session is open; a v1 peer is told only where it asked.
    fn announce(&self, state: &State, peer: PeerId, id: &SessionId, asked: bool) {
        if let (Some(peer), Some(session)) = (state.peers.get(&peer), state.sessions.get(id))
            && (asked || peer.terms().acks)
        {
            peer.outbox.control(session.opened(id));
        }
    }

    /// Acts on `session.close`.
    pub(super) fn close_session(
        &self,
        peer: PeerId,
        close: SessionClose,
    ) -> Result<(), SessionRefused> {
        let state = self.state();
        match state
            .sessions
            .get(&close.session_id)
            .map(|session| session.holder)
        {
            None => Err(SessionRefused::new(
                ErrorCode::SessionClosed,
                "this session is not open",
            )),
            Some(Some(holder)) if holder != peer => Err(in_use()),
            Some(_) => {
                drop(state);
                self.begin_close(
                    close.session_id,
                    CloseReason::ClosedByHarness,
                    StopCause::Cancelled,
                );
                Ok(())
            }
        }
    }

    /// Stops a session's calls, ends its processes, then says so to its holder.
    pub(super) fn begin_close(&self, id: SessionId, reason: CloseReason, cause: StopCause) {
        let mut state = self.state();
        let Some(session) = state.sessions.get_mut(&id) else {
            return;
        };
        if std::mem::replace(&mut session.closing, true) {
            return;
        }
        session.stop_all(cause);
        session.calls.close();
        let (calls, processes) = (session.calls.clone(), session.processes.clone());
        drop(state);
        let hub = self.clone();
        self.0.calls.spawn(async move {
            calls.wait().await;
            let processes_killed = processes.close().await;
            let mut state = hub.state();
            let holder = state
                .sessions
                .remove(&id, &hub.0.limits)
                .and_then(|session| session.holder);
            if let Some(peer) = holder.and_then(|peer| state.peers.get(&peer)) {
                peer.outbox.control(SessionClosed {
                    session_id: id.clone(),
                    reason,
                    processes_killed,
                });
            }
            drop(state);
            tracing::info!(session = %id, ?reason, processes_killed, "session closed");
        });
    }

    /// Closes sessions that nobody came back to. Called at an interval.
    pub fn expire_sessions(&self) {
        let expired = self
            .state()
            .sessions
            .expired(&self.0.limits, Instant::now());
        for id in expired {
            self.begin_close(id, CloseReason::Expired, StopCause::Cancelled);
        }
    }
}

fn in_use() -> SessionRefused {
    SessionRefused::new(
        ErrorCode::SessionInUse,
        "another connection holds this session; take it over by `session.open` with its `resume_token`",
    )
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
    pub(super) fn to_protocol_error(self, session_id: SessionId) -> ProtocolError {
        ProtocolError {
            code: self.code,
            message: self.message,
            session_id: Some(session_id),
            tool_call_id: None,
        }
    }
}
