//! Where a call begins that may be over at once: on the thread of its connection.
//!
//! Each change of thread costs a command of a millisecond some hundredths of one, and several times that where the kernel wakes
//! another processor for it. So a command that finds nothing else running is started and watched where its message was read.
//! What it asks of that thread is little and bounded: its start, and what it says within a few milliseconds.

use std::time::Duration;

use tokio::runtime::{EnterGuard, Handle};
use tokio::time::Instant;

/// The connection's thread, lent to one call for a moment.
#[derive(Debug, Clone)]
pub struct Near {
    thread: Handle,
    until: Instant,
}

impl Near {
    /// Lends the current thread for a time; `None` outside of a runtime.
    pub fn lend(time: Duration) -> Option<Self> {
        Some(Self {
            thread: Handle::try_current().ok()?,
            until: Instant::now() + time,
        })
    }

    /// Returns the runtime of the thread, to run the call there.
    pub fn thread(&self) -> &Handle {
        &self.thread
    }

    /// Has handles that are made while the guard lives watched by the thread itself.
    pub fn watches(&self) -> EnterGuard<'_> {
        self.thread.enter()
    }

    /// Returns whether the call has to go.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }
}
