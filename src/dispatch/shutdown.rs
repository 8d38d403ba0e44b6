//! The orderly stop of a hub (protocol section 10).

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Hub;
use crate::stop::StopCause;
use crate::wire::{CloseReason, Drain};

impl Hub {
    /// Ends all calls and sessions: no new calls, `drain_timeout` for those that run, then the stop signal.
    ///
    /// `hurry` skips what is left of the wait. When it returns, each call has its answer in its outbox, no process of a
    /// session is left, and each connection is told to close once it has written what it holds.
    pub async fn shut_down(&self, reason: &str, hurry: &CancellationToken) {
        let limits = &self.0.limits;
        let drain = Drain {
            reason: reason.to_owned(),
            deadline_ms: u64::try_from(limits.drain_timeout.as_millis()).unwrap_or(u64::MAX),
        };
        self.note_stop();
        self.stop_taking_calls(&drain);
        self.0.calls.close();
        tokio::select! {
            () = hurry.cancelled() => {}
            _ = timeout(limits.drain_timeout, self.0.calls.wait()) => {}
        }
        let ids = self.state().sessions.ids();
        for id in ids {
            self.begin_close(id, CloseReason::ShuttingDown, StopCause::Shutdown);
        }
        // The process room bounds how long a command can take to end, the workspace room a file job.
        let bound = limits.kill_grace + limits.blocking_grace;
        if timeout(bound, self.0.calls.wait()).await.is_err() {
            tracing::error!(
                calls = self.0.calls.len(),
                "calls were still running at the end of the shutdown"
            );
        }
        self.0.rooms.processes.close().await;
        self.close_connections();
    }

    fn stop_taking_calls(&self, drain: &Drain) {
        let mut state = self.state();
        state.stopping = true;
        for peer in state.peers.values() {
            peer.outbox.control(drain.clone());
        }
    }

    fn close_connections(&self) {
        for peer in self.state().peers.values() {
            peer.outbox.close(1001, "the executor stops");
        }
    }
}
