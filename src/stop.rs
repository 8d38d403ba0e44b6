//! The one signal that ends a call early, and why it was given.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// Why a call was ended before it finished by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// `tool.cancel` came.
    Cancelled,
    /// Its session was closed.
    SessionClosed,
    /// The call's `deadline_ms` passed.
    Deadline,
    /// The daemon stops.
    Shutdown,
}

/// A stop signal shared by everything that works for one call.
///
/// The first cause given wins. Cloning is cheap; every clone sees the same signal.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    token: CancellationToken,
    cause: Arc<OnceLock<StopCause>>,
}

impl Stop {
    /// Makes a signal that nobody has given yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the signal. Returns whether this cause was the first.
    pub fn trigger(&self, cause: StopCause) -> bool {
        let first = self.cause.set(cause).is_ok();
        self.token.cancel();
        first
    }

    /// Returns the cause once the signal was given. Cheap enough to ask once per directory entry or block.
    pub fn cause(&self) -> Option<StopCause> {
        self.cause.get().copied()
    }

    /// Waits for the signal.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing; a later call sees the same signal.
    pub async fn stopped(&self) -> StopCause {
        self.token.cancelled().await;
        self.cause().unwrap_or(StopCause::Cancelled)
    }
}
