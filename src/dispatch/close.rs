//! How a session ends: its calls are stopped, its processes ended, its holder told.

use tokio::time::Instant;

use super::hold::in_use;
use super::session::SessionRefused;
use super::{Hub, PeerId};
use crate::stop::StopCause;
use crate::wire::{CloseReason, ErrorCode, SessionClose, SessionClosed, SessionId};

impl Hub {
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
                    StopCause::SessionClosed,
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
        session.processes.begin_close();
        session.calls.close();
        let (calls, processes) = (session.calls.clone(), session.processes.clone());
        let journal = session.journal.clone();
        drop(state);
        let hub = self.clone();
        let close = async move {
            calls.wait().await;
            let processes_killed = processes.close().await;
            // The next daemon goes on with what the stop of this one has cut short.
            if reason != CloseReason::ShuttingDown {
                journal.closed();
            }
            let mut state = hub.state();
            let holder = if reason == CloseReason::ShuttingDown {
                // It stays: its last results are still to be written and acknowledged.
                state.sessions.get(&id).and_then(|session| session.holder)
            } else {
                let removed = state.sessions.remove(&id, &hub.0.limits);
                removed.and_then(|session| session.holder)
            };
            if let Some(peer) = holder.and_then(|peer| state.peers.get(&peer)) {
                // In the lane of the results: the session's own come before it.
                peer.outbox.after_results(SessionClosed {
                    session_id: id.clone(),
                    reason,
                    processes_killed,
                });
            }
            drop(state);
            tracing::info!(session = %id, ?reason, processes_killed, "session closed");
        };
        self.0.calls.spawn_on(close, &self.0.workers);
    }

    /// Closes sessions that nobody came back to, and forgets what has aged in the others. Called at an interval.
    pub fn expire_sessions(&self) {
        let mut state = self.state();
        for id in state.sessions.ids() {
            self.settle_written(&mut state, &id, self.0.limits.heartbeat, false);
        }
        let expired = state.sessions.expired(&self.0.limits, Instant::now());
        drop(state);
        for id in expired {
            self.begin_close(id, CloseReason::Expired, StopCause::SessionClosed);
        }
    }
}
