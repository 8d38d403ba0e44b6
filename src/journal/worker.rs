//! The thread that writes what nobody waits for, and writes the file anew where it has grown.
//!
//! Calls go on meanwhile: they are held up only for the last step, which copies what came since the last look.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use super::file::{self, Appended};
use super::session::SessionJournal;
use super::{Inner, now_ms};

/// Something for the thread to do.
#[derive(Debug)]
pub(super) enum Job {
    /// Write the record of a session.
    Open(SessionJournal),
    /// Look after what was noted without waiting.
    Watch,
    /// Write the file anew.
    Renew,
    /// Say when everything before this is done.
    Flush(SyncSender<()>),
}

/// How long what was noted waits for somebody to take it along.
const GATHER: Duration = Duration::from_millis(5);

/// Does what comes until the journal has ended.
pub(super) fn run(journal: &Weak<Inner>, jobs: &Receiver<Job>) {
    let mut look_at = None;
    loop {
        let job = match look_at {
            Some(at) => jobs.recv_timeout(Instant::saturating_duration_since(&at, Instant::now())),
            None => jobs.recv().map_err(RecvTimeoutError::from),
        };
        let Some(inner) = journal.upgrade() else {
            return;
        };
        let soon = || Some(Instant::now() + GATHER);
        match job {
            Ok(Job::Open(session)) => session.open(),
            Ok(Job::Watch) => look_at = soon(),
            Ok(Job::Renew) => {
                renew_file(&inner);
                inner.renewing.store(false, Ordering::Release);
            }
            Ok(Job::Flush(done)) => {
                inner.append_frames(&inner.notes.take());
                if done.send(()).is_err() {
                    tracing::debug!("nobody waits for the journal any more");
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let noted = inner.notes.look();
                look_at = noted.as_ref().and_then(|_| soon());
                inner.append_frames(&noted.unwrap_or_default());
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn renew_file(inner: &Inner) {
    if let Err(error) = try_to_renew(inner) {
        tracing::warn!(%error, "the journal could not be written anew; it goes on growing");
        // Tried again only once it has grown by as much again.
        let mut guard = inner.file();
        if let Some(file) = guard.as_mut() {
            file.renew_at = file.length + inner.limits.journal_slack_bytes;
        }
    }
}

/// What may be copied while calls wait.
const LAST_COPY: u64 = 256 * 1024;

/// Rounds of copying before the rest is copied while calls wait, however much it is.
const ROUNDS: usize = 8;

fn try_to_renew(inner: &Inner) -> std::io::Result<()> {
    let guard = inner.file();
    let Some(current) = guard.as_ref() else {
        return Ok(());
    };
    let (old, mut done) = (current.file.try_clone()?, current.length);
    drop(guard);
    let mut state = file::read(&old, done, &inner.limits)?.state;
    state.alive = now_ms();
    state.trim(state.alive, &inner.limits);
    let new = file::write_new(&inner.directory, &state, Some(&old))?;
    drop(state);
    // What is worth keeping; what is copied below may be forgotten next time.
    let kept = new.metadata()?.len();
    for round in 0.. {
        let mut guard = inner.file();
        let Some(current) = guard.as_mut() else {
            file::drop_new(&inner.directory);
            return Ok(());
        };
        let end = current.length;
        if end - done > LAST_COPY && round < ROUNDS {
            drop(guard);
            file::copy(&old, done, end, &new).inspect_err(|_| file::drop_new(&inner.directory))?;
            done = end;
            continue;
        }
        file::copy(&old, done, end, &new).inspect_err(|_| file::drop_new(&inner.directory))?;
        let mut appended = Appended::new(new, &inner.limits)?;
        appended.renew_at = 2 * kept + inner.limits.journal_slack_bytes;
        file::take_place(&inner.directory)?;
        *current = appended;
        return Ok(());
    }
    Ok(())
}
