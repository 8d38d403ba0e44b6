//! The progress of one call on its way to whichever connection holds the call's session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::Outbox;
use crate::metrics::Metrics;
use crate::progress::ProgressSink;
use crate::wire::{OutputStream, SessionId, ToolCallId, ToolProgress};

/// Most messages of one call that wait in the progress lane, so that a flood leaves room for the others.
const QUEUED_PER_CALL: usize = 8;

/// What the progress of one call has come to.
#[derive(Debug, Default)]
pub(super) struct CallLane {
    seq: AtomicU64,
    queued: AtomicUsize,
    dropped: AtomicU64,
    answered: AtomicBool,
}

impl CallLane {
    /// Counts a message that waits.
    pub(super) fn queue(&self) {
        self.queued.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one that does no longer; returns whether its call has no answer yet.
    pub(super) fn take(&self) -> bool {
        self.queued.fetch_sub(1, Ordering::Relaxed);
        !self.answered.load(Ordering::Acquire)
    }
}

/// The progress lane of one call: finds the connection that holds its session, and drops what that does not take.
pub(super) struct CallProgress<F> {
    session_id: SessionId,
    tool_call_id: ToolCallId,
    lane: Arc<CallLane>,
    metrics: Arc<Metrics>,
    outbox: F,
}

/// Ends the progress of a call, so that none follows its result.
#[derive(Debug, Clone, Default)]
pub(super) struct ProgressEnd(Arc<CallLane>);

impl ProgressEnd {
    pub(super) fn end(&self) {
        self.0.answered.store(true, Ordering::Release);
    }
}

impl<F: Fn() -> Option<Arc<Outbox>> + Send + Sync> CallProgress<F> {
    pub(super) fn new(
        session_id: SessionId,
        tool_call_id: ToolCallId,
        end: &ProgressEnd,
        metrics: Arc<Metrics>,
        outbox: F,
    ) -> Self {
        Self {
            session_id,
            tool_call_id,
            lane: Arc::clone(&end.0),
            metrics,
            outbox,
        }
    }
}

impl<F: Fn() -> Option<Arc<Outbox>> + Send + Sync> ProgressSink for CallProgress<F> {
    fn offer(&self, stream: Option<OutputStream>, message: String, dropped_bytes: u64) {
        let lane = &self.lane;
        let seq = lane.seq.fetch_add(1, Ordering::Relaxed);
        let bytes = if stream.is_some() {
            message.len() as u64
        } else {
            0
        };
        let dropped = lane.dropped.swap(0, Ordering::Relaxed) + dropped_bytes;
        let progress = ToolProgress {
            session_id: self.session_id.clone(),
            tool_call_id: self.tool_call_id.clone(),
            seq,
            message,
            stream,
            dropped_bytes: (dropped > 0).then_some(dropped),
        };
        let room = lane.queued.load(Ordering::Relaxed) < QUEUED_PER_CALL;
        let taken = room && (self.outbox)().is_some_and(|outbox| outbox.progress(progress, lane));
        // What was dropped before is in `dropped` again, and has been counted.
        let new = dropped_bytes + if taken { 0 } else { bytes };
        if new > 0 {
            self.metrics.dropped_progress_bytes.add(new);
        }
        if !taken {
            lane.dropped.fetch_add(dropped + bytes, Ordering::Relaxed);
        }
    }
}
