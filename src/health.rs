//! Whether a daemon can take calls, and why not. Written by the rooms that know, read by the admin port.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a daemon is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// It does not serve yet.
    #[default]
    Starting,
    /// It serves.
    Serving,
    /// It takes no further calls.
    Stopping,
}

/// The health of one daemon.
#[derive(Debug, Default)]
pub struct Health(Mutex<State>);

#[derive(Debug, Clone, Default)]
struct State {
    phase: Phase,
    harness: Harness,
}

/// Where a daemon stands with the harness that it dials.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Harness {
    /// It dials none.
    #[default]
    NotDialled,
    /// The connection is there.
    Connected,
    /// There is none, for this reason.
    Missing(String),
}

impl Health {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what the daemon does now; a daemon that stops does not serve again.
    pub fn set_phase(&self, phase: Phase) {
        let mut state = self.state();
        if state.phase != Phase::Stopping {
            state.phase = phase;
        }
    }

    /// Says where it stands with its harness.
    pub fn set_harness(&self, harness: Harness) {
        self.state().harness = harness;
    }

    /// Returns both.
    pub fn now(&self) -> (Phase, Harness) {
        let state = self.state().clone();
        (state.phase, state.harness)
    }
}
