//! How a tool tells what it is doing, without waiting for anybody.

use std::fmt;
use std::sync::Arc;

use crate::wire::OutputStream;

/// Takes progress of one call. It never blocks and may drop what it is offered.
pub trait ProgressSink: Send + Sync {
    /// Offers a text; `dropped_bytes` counts output that was left out before it.
    fn offer(&self, stream: Option<OutputStream>, message: String, dropped_bytes: u64);
}

/// A handle on a call's progress lane. Best effort: what the harness does not read in time is dropped and counted.
#[derive(Clone)]
pub struct Progress(Arc<dyn ProgressSink>);

impl Progress {
    /// Makes a handle that offers to `sink`.
    pub fn new(sink: Arc<dyn ProgressSink>) -> Self {
        Self(sink)
    }

    /// Makes a handle that drops everything, for work that nobody watches.
    pub fn silent() -> Self {
        struct Silent;
        impl ProgressSink for Silent {
            fn offer(&self, _: Option<OutputStream>, _: String, _: u64) {}
        }
        Self(Arc::new(Silent))
    }

    /// Says what the tool is doing.
    pub fn say(&self, message: impl Into<String>) {
        self.0.offer(None, message.into(), 0);
    }

    /// Passes on command output; `dropped_bytes` counts what was left out before it.
    pub fn output(&self, stream: OutputStream, message: String, dropped_bytes: u64) {
        self.0.offer(Some(stream), message, dropped_bytes);
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}
