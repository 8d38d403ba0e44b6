//! Which connection holds a session: opening, taking up again, taking over (protocol section 3).

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::session::{Session, SessionRefused};
use super::{Hub, PeerId, State};
use crate::journal::SessionFacts;
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
        if state.stopping {
            // A new session of this id would stand in the journal in place of the one that the next daemon goes on with.
            return Err(SessionRefused::new(
                ErrorCode::ShuttingDown,
                "the executor stops and opens no sessions",
            ));
        }
        let Some(session) = state.sessions.get(&id) else {
            let workspace = match open.workspace.as_deref() {
                Some(path) => self.enter(path)?,
                None => self.0.rooms.workspace.clone(),
            };
            let env = open.env.unwrap_or_default();
            self.insert_session(&mut state, peer, &id, workspace, variables(env))?;
            Self::announce(&mut state, peer, &id, true);
            return Ok(());
        };
        let shown = open.resume_token.as_deref();
        let token_fits =
            shown.is_some_and(|token| crate::secret::is_one_of(token, &session.tokens));
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
        self.give_again(&mut state, &id, open.workspace, open.env)?;
        Self::announce(&mut state, peer, &id, true);
        Ok(())
    }

    /// Enters a directory below the root: a few system calls on a local directory. The order of a connection's messages
    /// would be lost if they were made elsewhere than on its reader.
    fn enter(&self, path: &str) -> Result<Workspace, SessionRefused> {
        self.0.rooms.workspace.below(path).map_err(|error| {
            SessionRefused::new(ErrorCode::InvalidInput, format!("`workspace`: {error}"))
        })
    }

    /// Gives a session again what a restart of the daemon has lost of it; what it still has stays as it is.
    fn give_again(
        &self,
        state: &mut State,
        id: &SessionId,
        workspace: Option<String>,
        env: Option<BTreeMap<String, String>>,
    ) -> Result<(), SessionRefused> {
        let Some(session) = state.sessions.get_mut(id) else {
            return Ok(());
        };
        if let Some(path) = workspace.filter(|_| session.lost.workspace) {
            session.workspace = self.enter(&path)?;
            session.lost.workspace = false;
        }
        if let Some(env) = env.filter(|_| session.lost.env) {
            session.processes = self.0.rooms.processes.session(variables(env));
            session.lost.env = false;
        }
        Ok(())
    }

    fn insert_session(
        &self,
        state: &mut State,
        peer: PeerId,
        id: &SessionId,
        workspace: Workspace,
        env: Vec<(OsString, OsString)>,
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
        let token = crate::secret::token().map_err(|error| {
            tracing::error!(%error, "no random bytes for a resume token");
            SessionRefused::new(ErrorCode::Internal, "the kernel gave no random bytes")
        })?;
        let elsewhere = workspace.root() != self.0.rooms.workspace.root();
        let facts = SessionFacts {
            id: id.clone(),
            workspace: elsewhere.then(|| workspace.shown_root()),
            has_env: !env.is_empty(),
        };
        let digest = crate::secret::digest(&token);
        let journal = self.0.journal.session(facts, digest);
        let processes = self.0.rooms.processes.session(env);
        let session = Session {
            holder: Some(peer),
            resume_token: Some(token),
            tokens: vec![digest],
            ..Session::new(workspace, processes, journal, limits)
        };
        state.sessions.insert(id, session);
        Ok(())
    }

    /// Makes `peer` the holder of a session, and queues what the last holder may not have got.
    pub(super) fn hand_over(&self, state: &mut State, peer: PeerId, id: &SessionId) {
        self.settle_written(state, id, self.0.limits.heartbeat, true);
        if let Some(session) = state.sessions.get_mut(id) {
            session.holder = Some(peer);
            session.released = None;
        }
        self.redeliver(state, peer, id);
    }

    /// Says that a session is open; a v1 peer is told only where it asked.
    fn announce(state: &mut State, peer: PeerId, id: &SessionId, asked: bool) {
        if let (Some(peer), Some(session)) = (state.peers.get(&peer), state.sessions.get_mut(id))
            && (asked || peer.terms().acks)
        {
            match session.opened(id) {
                Ok(opened) => peer.outbox.control(opened),
                Err(error) => tracing::error!(%error, "no random bytes for a resume token"),
            }
        }
    }
}

fn variables(env: BTreeMap<String, String>) -> Vec<(OsString, OsString)> {
    env.into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
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
