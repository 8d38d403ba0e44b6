//! Whether calls can be taken, with the reasons where not, and what works in a lesser mode.

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::dispatch::Hub;
use crate::health::{Harness, Phase};
use crate::limits::Limits;

/// Answers `/readyz`.
#[derive(Debug)]
pub(super) struct Readiness {
    hub: Hub,
    limits: Arc<Limits>,
    /// Held by a look at the workspace until it comes back.
    looking: Arc<Mutex<()>>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) ready: bool,
    /// Why not; empty where it is ready.
    reasons: Vec<String>,
    /// What works, but less well than it could.
    notes: Vec<&'static str>,
}

impl Readiness {
    pub(super) fn new(hub: Hub, limits: &Arc<Limits>) -> Self {
        Self {
            hub,
            limits: Arc::clone(limits),
            looking: Arc::default(),
        }
    }

    /// Looks at the daemon and at its workspace, within a bound.
    pub(super) async fn report(&self) -> Report {
        let mut reasons = Vec::new();
        let (phase, harness) = self.hub.health().now();
        match phase {
            Phase::Starting => reasons.push("the executor starts".to_owned()),
            Phase::Serving => {}
            Phase::Stopping => reasons.push("the executor stops and takes no calls".to_owned()),
        }
        if let Harness::Missing(why) = harness {
            reasons.push(format!("not connected to the harness: {why}"));
        }
        reasons.extend(self.workspace_fault().await.map(str::to_owned));
        let mut notes = Vec::new();
        if !self.hub.metrics().journal.is_on_disk() {
            notes.push("the journal is in memory: a restart forgets finished calls");
        }
        Report {
            ready: reasons.is_empty(),
            reasons,
            notes,
        }
    }

    /// Says what is wrong with the workspace. A look that hangs is not followed by another.
    async fn workspace_fault(&self) -> Option<&'static str> {
        let (workspace, looking) = (self.hub.workspace().clone(), Arc::clone(&self.looking));
        let look = async {
            let turn = looking.lock_owned().await;
            let look = move || {
                let found = workspace.exists();
                drop(turn);
                found
            };
            spawn_blocking(look).await.map_err(std::io::Error::other)?
        };
        match timeout(self.limits.workspace_check, look).await {
            Ok(Ok(true)) => None,
            Ok(Ok(false)) => {
                Some("the workspace was removed; start the executor again over one that is there")
            }
            Ok(Err(_)) => Some("the workspace cannot be read"),
            Err(_) => Some("the workspace does not answer; it may be on a hung mount"),
        }
    }
}
