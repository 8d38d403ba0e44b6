//! One writer for each file: a queue for each identity, kept only while somebody holds or awaits it.
//!
//! The lock is advisory and within this daemon. It must never be awaited from a blocking place.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Queue, OwnedMutexGuard};

use super::blocking::Stopped;
use crate::stop::Stop;

/// What identifies a file, whatever spelling leads to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A name in a directory: it stays when the file behind it is replaced. Taken before any [`Key::File`].
    Name {
        device: u64,
        directory: u64,
        name: Vec<u8>,
    },
    /// A file, which hard links and mounts reach by further names.
    File { device: u64, inode: u64 },
}

type Queues = Mutex<HashMap<Key, Arc<Queue<()>>>>;

/// The queues in use.
#[derive(Debug, Default)]
pub(super) struct FileLocks(Queues);

/// A place in a queue; the queue goes with its last place.
#[derive(Debug)]
struct Place {
    locks: Arc<FileLocks>,
    key: Key,
    queue: Option<Arc<Queue<()>>>,
}

/// A held lock.
#[derive(Debug)]
pub(super) struct Held {
    // Order matters: the guard must be given up before the place is.
    _guard: OwnedMutexGuard<()>,
    place: Place,
}

impl Held {
    /// Returns what is locked.
    pub(super) fn key(&self) -> &Key {
        &self.place.key
    }
}

impl FileLocks {
    /// Takes a lock if nobody holds or awaits it.
    pub(super) fn try_lock(self: &Arc<Self>, key: &Key) -> Option<Held> {
        let (place, queue) = self.enter(key);
        let guard = queue.try_lock_owned().ok()?;
        Some(Held {
            _guard: guard,
            place,
        })
    }

    /// Waits for a lock, first come first served.
    ///
    /// # Errors
    /// [`Stopped`] where the signal came first.
    pub(super) async fn lock(self: &Arc<Self>, key: &Key, stop: &Stop) -> Result<Held, Stopped> {
        let (place, queue) = self.enter(key);
        tokio::select! {
            biased; // A stopped call must not go on, even where the lock is free.
            cause = stop.stopped() => Err(Stopped(cause)),
            guard = queue.lock_owned() => Ok(Held { _guard: guard, place }),
        }
    }

    fn enter(self: &Arc<Self>, key: &Key) -> (Place, Arc<Queue<()>>) {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = Arc::clone(queues.entry(key.clone()).or_default());
        let place = Place {
            locks: Arc::clone(self),
            key: key.clone(),
            queue: Some(Arc::clone(&queue)),
        };
        (place, queue)
    }

    /// Counts the queues in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queues = self.locks.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.queue.take());
        // The map's own reference is the last: nobody can enter while the map is locked.
        if queues
            .get(&self.key)
            .is_some_and(|queue| Arc::strong_count(queue) == 1)
        {
            queues.remove(&self.key);
        }
    }
}
