//! Which thread a call begins on: a worker, or the connection's own.
//!
//! Two changes of thread take longer than a small read does, and a good part of what a short command takes. So what may be done
//! at a glance is tried where the message was read, and what may be brief and finds nothing else running stays there for a
//! moment. As long as a result waits to be written, the next calls go to the workers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;

use super::toolbox::Pace;
use super::{Connection, Hub};
use crate::near::Near;

impl Connection {
    /// Returns the connection's thread for a call that has its slot, where it may begin there.
    pub(super) fn near(&self, pace: Pace) -> Option<Near> {
        let hub = &self.hub.0;
        let alone = || hub.slots.available_permits() + 1 == hub.limits.max_concurrent_calls;
        let lends = pace == Pace::MayBeBrief && self.outbox().is_read() && alone();
        lends
            .then(|| Near::lend(hub.limits.brief_command))
            .flatten()
    }

    /// Runs an admitted call: on this thread as far as its pace allows, else on the workers.
    pub(super) fn start(
        &self,
        call: impl Future<Output = ()> + Send + 'static,
        pace: Pace,
        near: Option<Near>,
    ) {
        let hub = &self.hub.0;
        if let Some(near) = near {
            let brief = Brief {
                call: Some(Box::pin(hub.calls.track_future(call))),
                workers: hub.workers.clone(),
                near: near.clone(),
            };
            drop(near.thread().spawn(brief));
        } else if pace == Pace::AtAGlance && self.outbox().is_read() {
            take_first_step(hub.calls.track_future(call), &self.hub);
        } else {
            hub.calls.spawn_on(call, &hub.workers);
        }
    }
}

fn take_first_step(call: impl Future<Output = ()> + Send + 'static, hub: &Hub) {
    let mut call = Box::pin(call);
    let workers = &hub.0.workers;
    // Timers and jobs of the first step belong to the workers, whoever takes it.
    let _workers = workers.enter();
    let mut unwoken = Context::from_waker(Waker::noop());
    let step = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(&mut unwoken)));
    // A panic has dropped the call's ticket, which answers; the connection must not end of it.
    if matches!(step, Ok(Poll::Pending)) {
        // Polled once more there, so nothing is lost by the waker that wakes nobody.
        drop(workers.spawn(call));
    }
}

/// A call on its connection's thread. It goes to the workers when its time there is over, or the thread ends.
struct Brief<F: Future<Output = ()> + Send + 'static> {
    call: Option<Pin<Box<F>>>,
    workers: Handle,
    near: Near,
}

impl<F: Future<Output = ()> + Send + 'static> Future for Brief<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Taken out for the moment, so that one that panics is not gone on with.
        let Some(mut call) = self.call.take() else {
            return Poll::Ready(());
        };
        // Timers, jobs and tasks of its own belong to the workers from the beginning.
        let workers = self.workers.enter();
        if call.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if self.near.is_over() {
            drop(self.workers.spawn(call));
            return Poll::Ready(());
        }
        drop(workers);
        self.call = Some(call);
        Poll::Pending
    }
}

impl<F: Future<Output = ()> + Send + 'static> Drop for Brief<F> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            drop(self.workers.spawn(call));
        }
    }
}
