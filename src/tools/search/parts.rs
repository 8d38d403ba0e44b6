//! What the threads of a search have found, kept where an answer can be made of it without them.
//!
//! A thread that hangs (in a dead mount) cannot hand over what it has; so it never owns it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What one thread has found so far.
#[derive(Debug)]
pub(in crate::tools) struct Part<F>(Arc<Mutex<F>>);

/// The parts of one search.
#[derive(Debug)]
pub(in crate::tools) struct Parts<F>(Arc<Mutex<Vec<Part<F>>>>);

impl<F> Clone for Part<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F> Clone for Parts<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F> Part<F> {
    /// Gives access; never to be held while something is waited for.
    pub(in crate::tools) fn lock(&self) -> MutexGuard<'_, F> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> Parts<F> {
    /// Makes a search without parts.
    pub(in crate::tools) fn new() -> Self {
        Self(Arc::default())
    }

    /// Adds the part of a thread.
    pub(in crate::tools) fn add(&self, found: F) -> Part<F> {
        let part = Part(Arc::new(Mutex::new(found)));
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.push(part.clone());
        part
    }

    /// Takes together what was found so far and leaves fresh parts behind.
    pub(in crate::tools) fn together(
        &self,
        fresh: impl Fn() -> F,
        absorb: impl Fn(&mut F, F),
    ) -> F {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = fresh();
        for part in parts.iter() {
            let found = std::mem::replace(&mut *part.lock(), fresh());
            absorb(&mut all, found);
        }
        all
    }
}
