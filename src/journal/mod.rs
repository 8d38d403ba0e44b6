//! What must outlive the daemon: which sessions there are, which calls began, and what they came to.
//!
//! One file in the state directory, to which a record is appended at each change of state. A record is one write(2) into
//! the page cache: it survives the death of the daemon by whatever signal, not a loss of power. Inputs, variables and
//! resume tokens are never in it, only digests; results are, as far as they are small.
//!
//! Where the file cannot be had or fails, the journal goes on in memory: nothing is kept, and everybody is told.
//!
//! `record` spells a record, `file` holds them, `replay` says what they come to; `session` is what calls write to,
//! `notes` holds what nobody waits for, `worker` writes that where nothing takes it along, and writes the file anew where it
//! has grown.

mod file;
mod notes;
mod open;
mod record;
mod replay;
mod session;
#[cfg(test)]
mod tests;
mod worker;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::watch;

pub use session::SessionJournal;

use crate::limits::Limits;
use crate::metrics::JournalCounts;
use crate::wire::{SessionId, ToolCallId};
use file::Appended;
use notes::Notes;
use record::Record;
use worker::Job;

/// Identifies a text or a call without keeping it (SHA-256).
pub type Digest = [u8; 32];

/// The journal of one daemon. Cloning is cheap; every clone is the same journal.
#[derive(Debug, Clone)]
pub struct Journal(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: Arc<Limits>,
    directory: PathBuf,
    /// Why nothing is kept, where that is so.
    lost: watch::Sender<Option<String>>,
    /// Where records go; none where nothing is kept.
    file: Mutex<Option<Appended>>,
    notes: Notes,
    /// To the thread that does what may not be waited for; none where nothing is kept.
    jobs: Option<SyncSender<Job>>,
    /// Whether that thread has been asked to write the file anew.
    renewing: AtomicBool,
    next_session: AtomicU64,
    counts: JournalCounts,
}

/// What a session is, as far as it outlives the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFacts {
    /// Its id.
    pub id: SessionId,
    /// Its directory where that is not the root workspace, as [`crate::workspace::Workspace::shown_root`] spells it.
    pub workspace: Option<String>,
    /// Whether it was opened with variables; they are not kept.
    pub has_env: bool,
}

/// What a journal held when it was opened.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The sessions, in the order in which they were opened.
    pub sessions: Vec<RecoveredSession>,
}

/// A session of a daemon that is gone.
#[derive(Debug)]
pub struct RecoveredSession {
    /// What it is.
    pub facts: SessionFacts,
    /// Digests of the resume tokens that it may be taken up with.
    pub tokens: Vec<Digest>,
    /// For how long the daemon has been gone.
    pub age: Duration,
    /// Calls that had begun and not ended.
    pub interrupted: Vec<(ToolCallId, Digest)>,
    /// Calls that had ended, in the order in which they did.
    pub finished: Vec<RecoveredCall>,
    /// Where what comes now is kept.
    pub journal: SessionJournal,
}

/// A finished call of a daemon that is gone.
#[derive(Debug)]
pub struct RecoveredCall {
    /// Its id.
    pub id: ToolCallId,
    /// Of its name and input.
    pub digest: Digest,
    /// How long ago it ended.
    pub age: Duration,
    /// Whether its harness has the result.
    pub delivered: bool,
    /// The encoded result; none where it was too large to keep.
    pub result: Option<Bytes>,
}

impl Journal {
    /// Makes a journal that keeps nothing; `reason` says why, for people.
    pub fn memory(reason: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            limits: Arc::default(),
            directory: PathBuf::new(),
            lost: watch::Sender::new(Some(reason.into())),
            file: Mutex::new(None),
            notes: Notes::default(),
            jobs: None,
            renewing: AtomicBool::new(false),
            next_session: AtomicU64::new(1),
            counts: JournalCounts::default(),
        }))
    }

    /// Returns why nothing is kept, where that is so.
    pub fn lost(&self) -> Option<String> {
        self.0.lost.borrow().clone()
    }

    /// Returns what was written since the start.
    pub fn counts(&self) -> &JournalCounts {
        &self.0.counts
    }

    /// Waits until nothing is kept any more, and returns why.
    ///
    /// # Cancel safety
    /// Nothing is lost where the future is dropped.
    pub async fn expect_loss(&self) -> String {
        let mut lost = self.0.lost.subscribe();
        match lost.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// Keeps nothing from now on, as if the daemon were dead. For tests, which restart within one process.
    pub fn sever(&self) {
        self.0.file().take();
    }

    /// Waits until what was noted without waiting is written. Not for the reader of a connection.
    pub fn flush(&self) {
        let (done, written) = std::sync::mpsc::sync_channel(1);
        if let Some(jobs) = &self.0.jobs
            && jobs.send(Job::Flush(done)).is_ok()
            && written.recv().is_err()
        {
            tracing::debug!("the journal has ended");
        }
    }

    /// Begins the journal of a session that is new, with the digest of its resume token. Never waits.
    pub fn session(&self, facts: SessionFacts, token: Digest) -> SessionJournal {
        let number = self.0.next_session.fetch_add(1, Ordering::Relaxed);
        let session = SessionJournal::new(self, number, facts, token);
        self.0.job(Job::Open(session.clone()));
        session
    }

    /// Notes that the daemon lives, and looks whether its file is still there. To be called about every half minute.
    pub fn alive(&self) {
        let touched = self
            .0
            .file()
            .as_ref()
            .is_some_and(|file| !file.is_untouched());
        if touched {
            self.0
                .lose("the journal was removed or changed by somebody else while the executor ran");
        }
        self.0.append(&Record::Alive { at: now_ms() });
    }
}

impl Inner {
    fn file(&self) -> MutexGuard<'_, Option<Appended>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends one record.
    fn append(&self, record: &Record<'_>) {
        let mut frames = self.notes.take();
        record.frame(&mut frames);
        self.append_frames(&frames);
    }

    /// Notes a record that nobody waits for. Never waits itself; where too many wait already it is not kept.
    fn note(&self, record: &Record<'_>) {
        let Some(jobs) = &self.jobs else { return };
        if self.notes.add(record, self.limits.journal_queue) && jobs.try_send(Job::Watch).is_err() {
            self.notes.unwatch();
        }
    }

    /// Appends records by one write. Where that fails, nothing is kept any more.
    fn append_frames(&self, frames: &[u8]) {
        if frames.is_empty() {
            return;
        }
        let mut guard = self.file();
        let Some(file) = guard.as_mut() else { return };
        let done = file.append(frames);
        let (length, renew_at) = (file.length, file.renew_at);
        drop(guard);
        if let Err(error) = done {
            self.counts.errors.add(1);
            return self.lose(&format!("the journal could not be written: {error}"));
        }
        self.counts.writes.add(1);
        self.counts.bytes.add(frames.len() as u64);
        if length > self.limits.journal_most_bytes {
            return self.lose("the journal has grown too long, and could not be written anew");
        }
        if length > renew_at && !self.renewing.swap(true, Ordering::AcqRel) {
            self.job(Job::Renew);
        }
    }

    /// Gives the file up: what it holds stays, nothing is added.
    fn lose(&self, reason: &str) {
        if self.file().take().is_some() {
            tracing::error!(
                reason,
                "a restart of this daemon will not know the calls from here on"
            );
            self.lost.send_replace(Some(format!(
                "{reason}; a restart forgets the calls since then"
            )));
        }
    }

    /// Hands something to the thread that may wait; returns whether it was taken.
    fn job(&self, job: Job) -> bool {
        self.jobs
            .as_ref()
            .is_some_and(|jobs| jobs.try_send(job).is_ok())
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
