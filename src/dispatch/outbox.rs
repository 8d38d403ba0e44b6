//! What waits to be written to one connection.
//!
//! Three lanes: control (bounded, overflow closes the connection), results (bounded: where it is full, the connection is
//! refused further calls), progress (lossy, drops and counts). Filling never waits, so that neither the reader nor a call can be held
//! up by a peer that does not read; only the writer waits, for something to write.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use super::kept::Accounted;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::progress::ProgressSink;
use crate::wire::{Encoded, OutputStream, SessionId, ToHarness, ToolCallId, ToolProgress, encode};

/// Something for the writer to do.
#[derive(Debug)]
pub enum Outgoing {
    /// Write one text message.
    Text(Bytes),
    /// Write a result, then drop its receipt with [`Receipt::written`].
    Result(Encoded, Receipt),
    /// Write a close frame and end.
    Close(CloseFrame),
}

/// Why a connection is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloseFrame {
    /// The WebSocket close code.
    pub code: u16,
    /// For a person.
    pub reason: String,
}

/// Tells the dispatcher that a result has left. Dropped without it, the result counts as not sent.
pub struct Receipt(Option<Box<dyn FnOnce() + Send>>);

impl Receipt {
    pub(super) fn new(written: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(written)))
    }

    /// Says that the result was handed to the socket.
    pub fn written(mut self) {
        if let Some(written) = self.0.take() {
            written();
        }
    }
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receipt")
    }
}

/// The lanes of one connection.
#[derive(Debug)]
pub struct Outbox {
    lanes: Mutex<Lanes>,
    filled: Notify,
    control_lane: usize,
    progress_lane: usize,
    result_lane: usize,
    result_bytes: usize,
}

#[derive(Debug, Default)]
struct Lanes {
    control: VecDeque<Bytes>,
    results: VecDeque<Queued>,
    /// Bytes of the results lane, as they were when they were queued.
    unread_bytes: usize,
    progress: VecDeque<QueuedProgress>,
    close: Option<CloseFrame>,
}

/// Something in the results lane.
#[derive(Debug)]
enum Queued {
    /// A result and its size when it was queued; what it is when its turn comes may be smaller.
    Result(Arc<Accounted>, usize, Receipt),
    /// A notice that must not come before them.
    Notice(Bytes),
}

#[derive(Debug)]
struct QueuedProgress {
    message: ToolProgress,
    lane: Arc<CallLane>,
}

impl Outbox {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            lanes: Mutex::default(),
            filled: Notify::new(),
            control_lane: limits.control_lane,
            progress_lane: limits.progress_lane,
            result_lane: limits.max_concurrent_calls,
            result_bytes: limits.outbox_bytes,
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no result waits to be written.
    pub(super) fn is_read(&self) -> bool {
        self.lanes().results.is_empty()
    }

    /// Queues an answer or a notice.
    pub(super) fn control(&self, message: impl Into<ToHarness>) {
        let Ok(text) = encode(&message.into()) else {
            tracing::error!("a control message could not be encoded");
            return;
        };
        let mut lanes = self.lanes();
        if lanes.control.len() < self.control_lane {
            lanes.control.push_back(text.into());
        } else if lanes.close.is_none() {
            let reason = "too many refused messages are waiting to be read".to_owned();
            lanes.close = Some(CloseFrame { code: 1008, reason });
        }
        drop(lanes);
        self.filled.notify_one();
    }

    pub(super) fn result(&self, text: Arc<Accounted>, receipt: Receipt) {
        let size = text.size();
        self.push_result(Queued::Result(text, size, receipt), size);
    }

    /// Queues a notice behind the results that are there already.
    pub(super) fn after_results(&self, message: impl Into<ToHarness>) {
        match encode(&message.into()) {
            Ok(text) => self.push_result(Queued::Notice(text.into()), 0),
            Err(error) => tracing::error!(%error, "a notice could not be encoded"),
        }
    }

    fn push_result(&self, queued: Queued, size: usize) {
        let mut lanes = self.lanes();
        lanes.unread_bytes += size;
        lanes.results.push_back(queued);
        drop(lanes);
        self.filled.notify_one();
    }

    /// Whether the peer reads its results fast enough to be given more.
    pub(super) fn has_room(&self) -> bool {
        let lanes = self.lanes();
        lanes.results.len() < self.result_lane && lanes.unread_bytes < self.result_bytes
    }

    /// Closes the connection once what is queued has been written, progress aside. The first reason wins.
    pub fn close(&self, code: u16, reason: impl Into<String>) {
        self.lanes().close.get_or_insert_with(|| CloseFrame {
            code,
            reason: reason.into(),
        });
        self.filled.notify_one();
    }

    /// Queues progress, or returns false where its lane is full.
    fn progress(&self, message: ToolProgress, lane: &Arc<CallLane>) -> bool {
        let mut lanes = self.lanes();
        if lanes.progress.len() >= self.progress_lane {
            return false;
        }
        lane.queued.fetch_add(1, Ordering::Relaxed);
        lanes.progress.push_back(QueuedProgress {
            message,
            lane: Arc::clone(lane),
        });
        drop(lanes);
        self.filled.notify_one();
        true
    }

    /// Waits for something to write: control first, then results, then progress of calls not yet answered.
    ///
    /// # Cancel safety
    /// Nothing is taken before it is returned.
    pub async fn next(&self) -> Outgoing {
        loop {
            // The permit of a notification given before this line is kept by `Notify`.
            if let Some(next) = self.try_next() {
                return next;
            }
            self.filled.notified().await;
        }
    }

    /// Returns what is there to write now.
    pub fn try_next(&self) -> Option<Outgoing> {
        let mut lanes = self.lanes();
        if let Some(text) = lanes.control.pop_front() {
            return Some(Outgoing::Text(text));
        }
        match lanes.results.pop_front() {
            Some(Queued::Result(text, size, receipt)) => {
                lanes.unread_bytes = lanes.unread_bytes.saturating_sub(size);
                return Some(Outgoing::Result(text.message(), receipt));
            }
            Some(Queued::Notice(text)) => return Some(Outgoing::Text(text)),
            None => {}
        }
        if let Some(close) = &lanes.close {
            return Some(Outgoing::Close(close.clone()));
        }
        while let Some(QueuedProgress { message, lane }) = lanes.progress.pop_front() {
            lane.queued.fetch_sub(1, Ordering::Relaxed);
            if !lane.answered.load(Ordering::Acquire)
                && let Ok(text) = encode(&ToHarness::from(message))
            {
                return Some(Outgoing::Text(text.into()));
            }
        }
        None
    }
}

/// Most messages of one call that wait in the progress lane, so that a flood leaves room for the others.
const QUEUED_PER_CALL: usize = 8;

/// What the progress of one call has come to.
#[derive(Debug, Default)]
struct CallLane {
    seq: AtomicU64,
    queued: AtomicUsize,
    dropped: AtomicU64,
    answered: AtomicBool,
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
