//! What waits to be written to one connection.
//!
//! Three lanes: control (bounded, overflow closes the connection), results (bounded: where it is full, the connection is
//! refused further calls), progress (lossy, drops and counts). Filling never waits, so that neither the reader nor a call can be held
//! up by a peer that does not read; only the writer waits, for something to write. A result that finds it waiting goes
//! past it, on the thread that has the result.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use super::call_progress::CallLane;
use super::kept::Accounted;
use crate::limits::Limits;
use crate::wire::{Encoded, Fragments, ToHarness, ToolProgress, encode};

/// Something for the writer to do.
#[derive(Debug)]
pub enum Outgoing {
    /// Write one text message.
    Text(Bytes),
    /// Write a result, then drop its receipt with [`Receipt::written`].
    Result(Encoded, Receipt),
    /// Write what a shortcut has left of a result, then do as with a whole one.
    Rest(Fragments, Receipt),
    /// Write a close frame and end.
    Close(CloseFrame),
}

/// A way to the socket past a connection's writer, for when that has nothing to do, and for a long message of its own.
pub trait Shortcut: std::fmt::Debug + Send + Sync {
    /// Writes a message as far as that needs no waiting; returns what is left for the writer, be it only the wait until the
    /// kernel has taken the last fragment.
    fn send(&self, message: Encoded) -> Option<Fragments>;

    /// Goes on with a message, to whose fragments the same applies.
    fn go_on(&self, fragments: Fragments) -> Option<Fragments>;
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
    shortcut: OnceLock<Arc<dyn Shortcut>>,
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
    /// Whether the writer waits, having written all that it took.
    idle: bool,
    /// Whether somebody writes past it.
    passing: bool,
    /// What that has left to it.
    rest: Option<(Fragments, Receipt)>,
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
            shortcut: OnceLock::new(),
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

    /// Opens a way past the writer.
    pub fn open_shortcut(&self, shortcut: Arc<dyn Shortcut>) {
        if self.shortcut.set(shortcut).is_err() {
            tracing::error!("a connection has one writer only");
        }
    }

    /// Writes fragments as far as that needs no waiting; returns what is left. For the writer only, when the kernel has taken all
    /// that it wrote.
    pub fn go_on(&self, fragments: Fragments) -> Option<Fragments> {
        match self.shortcut.get() {
            Some(shortcut) => shortcut.go_on(fragments),
            None => Some(fragments),
        }
    }

    /// Queues a result. Nobody is told before [`Self::send`] or [`Self::wake`].
    pub(super) fn result(&self, text: Arc<Accounted>, receipt: Receipt) {
        let size = text.size();
        self.push_result(Queued::Result(text, size, receipt), size);
    }

    /// Has the writer write what was queued.
    pub(super) fn wake(&self) {
        self.filled.notify_one();
    }

    /// Writes a result that was queued right here where nothing else waits, else has the writer do it. To be called without
    /// a lock: receipts are told.
    pub(super) fn send(&self) {
        let mut lanes = self.lanes();
        let free = lanes.idle && !lanes.passing && lanes.waiting() == 1;
        let shortcut = self.shortcut.get().filter(|_| free);
        let (Some(shortcut), Some(Queued::Result(..))) = (shortcut, lanes.results.front()) else {
            drop(lanes);
            return self.wake();
        };
        let Some(Outgoing::Result(message, receipt)) = lanes.take() else {
            return;
        };
        lanes.passing = true;
        drop(lanes);
        let left = shortcut.send(message);
        let (rest, written) = match left {
            Some(left) => (Some((left, receipt)), None),
            None => (None, Some(receipt)),
        };
        let mut lanes = self.lanes();
        lanes.passing = false;
        lanes.rest = rest;
        // Whatever has come meanwhile has woken the writer in vain.
        let waits = lanes.waiting() > 0;
        drop(lanes);
        if waits {
            self.wake();
        }
        if let Some(receipt) = written {
            receipt.written();
        }
    }

    /// Queues a notice behind the results that are there already.
    pub(super) fn after_results(&self, message: impl Into<ToHarness>) {
        match encode(&message.into()) {
            Ok(text) => {
                self.push_result(Queued::Notice(text.into()), 0);
                self.wake();
            }
            Err(error) => tracing::error!(%error, "a notice could not be encoded"),
        }
    }

    fn push_result(&self, queued: Queued, size: usize) {
        let mut lanes = self.lanes();
        lanes.unread_bytes += size;
        lanes.results.push_back(queued);
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
    pub(super) fn progress(&self, message: ToolProgress, lane: &Arc<CallLane>) -> bool {
        let mut lanes = self.lanes();
        if lanes.progress.len() >= self.progress_lane {
            return false;
        }
        lane.queue();
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
            let _idle = Idle::new(self);
            self.filled.notified().await;
        }
    }

    /// Returns what is there to write now.
    pub fn try_next(&self) -> Option<Outgoing> {
        let mut lanes = self.lanes();
        // What is written past the writer came first.
        if lanes.passing { None } else { lanes.take() }
    }
}

/// Says that the writer waits, for as long as it does.
struct Idle<'o>(&'o Outbox);

impl<'o> Idle<'o> {
    fn new(outbox: &'o Outbox) -> Self {
        outbox.lanes().idle = true;
        Self(outbox)
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.lanes().idle = false;
    }
}

impl Lanes {
    /// Returns how much there is to be written.
    fn waiting(&self) -> usize {
        let queued = self.control.len() + self.results.len() + self.progress.len();
        queued + usize::from(self.close.is_some()) + usize::from(self.rest.is_some())
    }

    /// Takes what is to be written next.
    fn take(&mut self) -> Option<Outgoing> {
        if let Some((fragments, receipt)) = self.rest.take() {
            return Some(Outgoing::Rest(fragments, receipt));
        }
        if let Some(text) = self.control.pop_front() {
            return Some(Outgoing::Text(text));
        }
        match self.results.pop_front() {
            Some(Queued::Result(text, size, receipt)) => {
                self.unread_bytes = self.unread_bytes.saturating_sub(size);
                return Some(Outgoing::Result(text.message(), receipt));
            }
            Some(Queued::Notice(text)) => return Some(Outgoing::Text(text)),
            None => {}
        }
        if let Some(close) = &self.close {
            return Some(Outgoing::Close(close.clone()));
        }
        while let Some(QueuedProgress { message, lane }) = self.progress.pop_front() {
            if lane.take()
                && let Ok(text) = encode(&ToHarness::from(message))
            {
                return Some(Outgoing::Text(text.into()));
            }
        }
        None
    }
}
