//! A finished call's result as it is kept, and what all of them take.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::answer::too_large;
use super::fit::spell;
use crate::wire::{Encoded, SessionId, ToolCallId};

/// A finished call's encoded result. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) body: Body,
    /// When it was written for a harness that acknowledges nothing (v1). It counts as delivered once its connection has
    /// lived for one more heartbeat.
    pub(super) written: Option<Instant>,
    _counted: Arc<Counted>,
}

/// What is left of a result.
#[derive(Debug, Clone)]
pub(super) enum Body {
    /// All of it.
    Whole(Arc<Accounted>),
    /// Nothing, and why.
    Gone(&'static str),
}

impl Kept {
    pub(super) fn new(body: Body, accounts: &Accounts) -> Self {
        Self {
            body,
            written: None,
            _counted: Counted::new(&accounts.calls, 1),
        }
    }

    /// Returns its bytes while they are there.
    pub(super) fn whole(&self) -> Option<&Arc<Accounted>> {
        match &self.body {
            Body::Whole(text) => Some(text),
            Body::Gone(_) => None,
        }
    }

    /// Returns what is to be sent of it.
    pub(super) fn text(
        &self,
        session: &SessionId,
        call: &ToolCallId,
        accounts: &Accounts,
    ) -> Arc<Accounted> {
        match &self.body {
            Body::Whole(text) => Arc::clone(text),
            Body::Gone(why) => {
                let small = too_large(session.clone(), call.clone(), why);
                Accounted::new(spell(small), accounts)
            }
        }
    }
}

/// What all results of the daemon take.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    bytes: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
}

impl Accounts {
    /// Bytes of results that anybody holds.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Calls that are remembered.
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

/// Bytes that count against the daemon's memory for results as long as anybody holds them.
///
/// Those that wait to be written hold the same ones, so that what is given up is free though it is queued.
#[derive(Debug)]
pub(super) struct Accounted(Mutex<Held>);

#[derive(Debug)]
struct Held {
    message: Encoded,
    counted: Arc<Counted>,
}

impl Held {
    fn new(message: Encoded, account: &Arc<AtomicUsize>) -> Self {
        // The allocator keeps holes of the size of what was freed beside it: a quarter on top (measured with 200
        // results of a megabyte).
        let taken = message.size() + message.size() / 4;
        let counted = Counted::new(account, taken);
        Self { message, counted }
    }
}

impl Accounted {
    pub(super) fn new(message: Encoded, accounts: &Accounts) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Held::new(message, &accounts.bytes))))
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is to be sent as it is now.
    pub(super) fn message(&self) -> Encoded {
        self.held().message.clone()
    }

    /// Returns the bytes of the message as it is now.
    pub(super) fn size(&self) -> usize {
        self.held().message.size()
    }

    /// Lets another message stand for this one, wherever it waits.
    pub(super) fn replace(&self, message: Encoded) {
        let mut held = self.held();
        *held = Held::new(message, &held.counted.account);
    }
}

#[derive(Debug)]
struct Counted {
    account: Arc<AtomicUsize>,
    amount: usize,
}

impl Counted {
    fn new(account: &Arc<AtomicUsize>, amount: usize) -> Arc<Self> {
        account.fetch_add(amount, Ordering::Relaxed);
        Arc::new(Self {
            account: Arc::clone(account),
            amount,
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.account.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

/// Calls of all sessions in the order of some event, to find the oldest at once. A call may be in it that is not known
/// any more; there are never more of those than of others.
#[derive(Debug, Default)]
pub(super) struct ByAge {
    calls: VecDeque<(SessionId, ToolCallId)>,
    sweep_at: usize,
}

/// More than come, so that none stay behind; few, so that no call pays for many.
const DROPPED_AT_ONCE: usize = 2;

/// Fewer entries than this are not worth a sweep.
const SWEEP_LEAST: usize = 1_024;

impl ByAge {
    /// Adds a call as the youngest, and drops those that `is_there` does not know: the oldest of them at once, others now
    /// and then.
    pub(super) fn push(
        &mut self,
        session: SessionId,
        call: ToolCallId,
        is_there: impl Fn(&SessionId, &ToolCallId) -> bool,
    ) {
        // Nearly all leave in the order in which they came. Left to the sweep, they would be as many as those that are there.
        for _ in 0..DROPPED_AT_ONCE {
            if self
                .calls
                .front()
                .is_none_or(|(session, call)| is_there(session, call))
            {
                break;
            }
            self.calls.pop_front();
        }
        if self.calls.len() >= self.sweep_at.max(SWEEP_LEAST) {
            self.calls.retain(|(session, call)| is_there(session, call));
            self.sweep_at = 2 * self.calls.len();
        }
        self.calls.push_back((session, call));
    }

    /// Takes the oldest.
    pub(super) fn pop(&mut self) -> Option<(SessionId, ToolCallId)> {
        self.calls.pop_front()
    }
}
