//! Which connection holds a session: opening, taking up again, taking over (protocol section 3).

use super::session::{Session, SessionRefused};
use super::{Hub, PeerId, State};
use crate::wire::{CloseReason, ErrorCode, SessionClosed, SessionId, SessionOpen};
use crate::workspace::Workspace;

impl Hub {
    /// Makes sure that `peer` holds the session of a call, opening it on the root workspace where it is new.
    pub(super) fn session_for_call(
        &self,
        state: &mut State,
        peer: PeerId,
        id: &SessionId,
    ) -> Result<(), SessionRefused> {
        check_connected(state, peer)?;
        let Some(session) = state.sessions.get(id) else {
            if state.sessions.is_closed(id) {
                return Err(SessionRefused::new(
                    ErrorCode::SessionClosed,
                    "this session was closed; send `session.open` to use its id again",
                ));
            }
            let workspace = self.0.rooms.workspace.clone();
            self.insert_session(state, peer, id, workspace, Vec::new())?;
            Self::announce(state, peer, id, false);
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
                Self::announce(state, peer, id, false);
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
        check_connected(&state, peer)?;
        let Some(session) = state.sessions.get(&id) else {
            let workspace = match &open.workspace {
                // A few system calls on a local directory; the order of this connection's messages
                // would be lost if they were made elsewhere.
                Some(path) => self.0.rooms.workspace.below(path).map_err(|error| {
                    SessionRefused::new(ErrorCode::InvalidInput, format!("`workspace`: {error}"))
                })?,
                None => self.0.rooms.workspace.clone(),
            };
            let env = open.env.unwrap_or_default();
            let env = env
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect();
            self.insert_session(&mut state, peer, &id, workspace, env)?;
            Self::announce(&state, peer, &id, true);
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
            Some(_) => return Err(in_use()),
            None => {
                return Err(SessionRefused::new(
                    ErrorCode::SessionInUse,
                    "this `resume_token` is not the session's; no connection holds the session, so it may be opened without one",
                ));
            }
        }
        Self::announce(&state, peer, &id, true);
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
        if state.sessions.len() >= limits.max_sessions {
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
        let processes = self.0.rooms.processes.session(env);
        let session = Session::new(workspace, processes, peer, resume_token, limits);
        state.sessions.insert(id, session);
        Ok(())
    }

    /// Makes `peer` the holder of a session, and queues what the last holder may not have got.
    pub(super) fn hand_over(&self, state: &mut State, peer: PeerId, id: &SessionId) {
        if let Some(session) = state.sessions.get_mut(id) {
            self.settle_written(id, session, true);
            session.holder = Some(peer);
            session.released = None;
        }
        self.redeliver(state, peer, id);
    }

    /// Says that a session is open; a v1 peer is told only where it asked.
    fn announce(state: &State, peer: PeerId, id: &SessionId, asked: bool) {
        if let (Some(peer), Some(session)) = (state.peers.get(&peer), state.sessions.get(id))
            && (asked || peer.terms().acks)
        {
            peer.outbox.control(session.opened(id));
        }
    }
}

/// A message may still be read after its connection has given its sessions up; it must not take one again.
fn check_connected(state: &State, peer: PeerId) -> Result<(), SessionRefused> {
    if state.peers.contains_key(&peer) {
        return Ok(());
    }
    Err(SessionRefused::new(
        ErrorCode::SessionInUse,
        "this connection has been closed",
    ))
}

pub(super) fn in_use() -> SessionRefused {
    SessionRefused::new(
        ErrorCode::SessionInUse,
        "another connection holds this session; take it over by `session.open` with its `resume_token`",
    )
}
