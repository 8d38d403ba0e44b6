//! The thread that writes what nobody may wait for, and writes the file anew where it has grown.
//!
//! Calls go on meanwhile: they are held up only for the last step, which copies what came since the last look.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use super::file::{self, Appended};
use super::session::SessionJournal;
use super::{Digest, Inner, now_ms};
use crate::wire::ToolCallId;

/// Something for the thread to do.
#[derive(Debug)]
pub(super) enum Job {
    /// Write the record of a session.
    Open(SessionJournal),
    /// Write that a call was delivered.
    Delivered(SessionJournal, ToolCallId),
    /// Write a token.
    Token(SessionJournal, Digest),
    /// Write the file anew.
    Renew,
    /// Say when everything before this is done.
    Flush(SyncSender<()>),
}

/// How long deliveries are gathered before they are written.
const GATHER: Duration = Duration::from_millis(5);

/// Jobs taken at one time; their records are one write.
const BATCH: usize = 256;

/// Does what comes until the journal has ended.
#[expect(clippy::disallowed_methods, reason = "the thread is its own")]
pub(super) fn run(journal: &Weak<Inner>, jobs: &Receiver<Job>) {
    let mut busy = false;
    while let Ok(job) = jobs.recv() {
        if matches!(job, Job::Delivered(..)) && !busy {
            // Nobody waits for these, and waking this thread for each would cost the next call its turn.
            std::thread::sleep(GATHER);
        }
        let Some(inner) = journal.upgrade() else {
            return;
        };
        let mut frames = Vec::new();
        let mut ends = Vec::new();
        let mut renew = false;
        let mut taken = 0;
        for job in std::iter::once(job).chain(jobs.try_iter().take(BATCH)) {
            taken += 1;
            match job {
                Job::Open(session) => session.open(),
                Job::Delivered(session, call) => session.delivered_into(&call, &mut frames),
                Job::Token(session, digest) => session.token_into(digest, &mut frames),
                Job::Renew => renew = true,
                Job::Flush(end) => ends.push(end),
            }
        }
        busy = taken > BATCH;
        if !frames.is_empty() {
            inner.append_frames(&frames);
        }
        if renew {
            renew_file(&inner);
            inner.renewing.store(false, Ordering::Release);
        }
        for end in ends {
            if end.send(()).is_err() {
                tracing::debug!("nobody waits for the journal any more");
            }
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
