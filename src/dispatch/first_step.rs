//! Which thread takes the first step of a call: a worker, or the connection's own.
//!
//! Two changes of thread take longer than a small read does. So what may be done at a glance is tried where the message
//! was read, one call at a time: as long as a result waits to be written, the next calls go to the workers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

use super::Connection;

impl Connection {
    /// Runs an admitted call, from its first step on here where that is `short`, else on the workers.
    pub(super) fn start(&self, call: impl Future<Output = ()> + Send + 'static, short: bool) {
        let hub = &self.hub.0;
        if !short || !self.outbox().is_read() {
            hub.calls.spawn_on(call, &hub.workers);
            return;
        }
        let mut call = Box::pin(hub.calls.track_future(call));
        // Timers and jobs of the first step belong to the workers, whoever takes it.
        let _workers = hub.workers.enter();
        let mut unwoken = Context::from_waker(Waker::noop());
        let step = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(&mut unwoken)));
        // A panic has dropped the call's ticket, which answers; the connection must not end of it.
        if matches!(step, Ok(Poll::Pending)) {
            // Polled once more there, so nothing is lost by the waker that wakes nobody.
            drop(hub.workers.spawn(call));
        }
    }
}
