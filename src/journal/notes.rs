//! Records that nobody waits for: the next write takes them along, or the thread of the journal does.
//!
//! Each of them woke that thread once, which takes longer than the write itself, and takes it from the next call.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::record::Record;

/// What waits to be written.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    frames: Vec<u8>,
    records: usize,
    /// Whether the thread looks after them.
    watched: bool,
    /// Whether any came since it last looked.
    stirred: bool,
}

impl Notes {
    /// Never held while anything is written: the reader of a connection comes here.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a record unless `most` wait; returns whether the thread has to be told to look after them.
    pub(super) fn add(&self, record: &Record<'_>, most: usize) -> bool {
        let mut waiting = self.waiting();
        if waiting.records < most {
            record.frame(&mut waiting.frames);
            waiting.records += 1;
        }
        waiting.stirred = true;
        !std::mem::replace(&mut waiting.watched, true)
    }

    /// Takes them, to be written before anything that comes later.
    pub(super) fn take(&self) -> Vec<u8> {
        let mut waiting = self.waiting();
        waiting.records = 0;
        std::mem::take(&mut waiting.frames)
    }

    /// Takes what nobody has taken along; `None` where none came since the last look, and nobody looks any longer.
    pub(super) fn look(&self) -> Option<Vec<u8>> {
        let mut waiting = self.waiting();
        waiting.watched = std::mem::take(&mut waiting.stirred);
        waiting.records = 0;
        let frames = std::mem::take(&mut waiting.frames);
        waiting.watched.then_some(frames)
    }

    /// Says that the thread could not be told.
    pub(super) fn unwatch(&self) {
        self.waiting().watched = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Record<'_> = Record::Closed { session: 1 };

    #[test]
    fn what_comes_is_looked_after_until_nothing_has_come_for_a_while() {
        let notes = Notes::default();
        assert!(notes.add(&RECORD, 9), "nobody looks yet");
        assert!(!notes.add(&RECORD, 9), "somebody looks");
        let first = notes.look().unwrap();
        assert!(!notes.add(&RECORD, 9));
        let taken_along = notes.take();
        assert_eq!(first.len(), 2 * taken_along.len());
        assert_eq!(notes.look(), Some(Vec::new()));
        assert_eq!(notes.look(), None);
        assert!(notes.add(&RECORD, 9), "nobody looks any longer");
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let notes = Notes::default();
        for _ in 0..5 {
            notes.add(&RECORD, 2);
        }
        let mut two = Vec::new();
        RECORD.frame(&mut two);
        RECORD.frame(&mut two);
        assert_eq!(notes.take(), two);
        notes.add(&RECORD, 2);
        assert_eq!(notes.take().len(), two.len() / 2, "there is room again");
    }
}
