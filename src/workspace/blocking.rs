//! One blocking hop for each request, under a bound that all workspaces of the daemon share.
//!
//! A job looks at its stop signal itself. One that hangs all the same (a dead mount) is left behind after a grace
//! and keeps its place, so that hung jobs cannot pile up.

use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::time::timeout;

use super::Workspace;
use crate::stop::{Stop, StopCause};

/// A job was stopped before it had a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped(pub(crate) StopCause);

impl Workspace {
    /// Runs a job that may block on files.
    ///
    /// The stop signal ends the wait for a place. A job that runs when it comes is waited for
    /// `limits.blocking_grace`; what it returns then still counts.
    ///
    /// # Errors
    /// [`Stopped`] where the signal came first.
    ///
    /// # Panics
    /// Where the job panics, so does the caller.
    ///
    /// # Cancel safety
    /// Dropping the future leaves a running job to its own end.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        stop: &Stop,
        job: impl FnOnce(&Stop) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let shared = &self.0.shared;
        let place = tokio::select! {
            biased; // A call that was stopped must not start work, even where a place is free.
            cause = stop.stopped() => return Err(Stopped(cause)),
            place = Arc::clone(&shared.jobs).acquire_owned() => place,
        };
        let Ok(place) = place else {
            return Err(Stopped(StopCause::Shutdown));
        };
        let signal = stop.clone();
        let mut running = tokio::task::spawn_blocking(move || {
            let _place = place;
            job(&signal)
        });
        let joined = tokio::select! {
            biased; // A result that is there counts, even if the signal is there too.
            joined = &mut running => joined,
            cause = stop.stopped() => {
                match timeout(shared.limits.blocking_grace, running).await {
                    Ok(joined) => joined,
                    Err(_) => return Err(Stopped(cause)),
                }
            }
        };
        joined.map_err(|error| match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => Stopped(stop.cause().unwrap_or(StopCause::Shutdown)),
        })
    }
}
