//! The journal of one session: what its calls write, in an order that a reader can rely on.
//!
//! A session's own record comes before its first call's and none after its end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::record::Record;
use super::{Digest, Journal, SessionFacts, now_ms};
use crate::wire::ToolCallId;

/// The journal of one session. Cloning is cheap; every clone is the same session's.
#[derive(Debug, Clone)]
pub struct SessionJournal(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    journal: Journal,
    number: u64,
    facts: SessionFacts,
    written: Mutex<Written>,
}

/// Whether the session stands in the file.
#[derive(Debug)]
enum Written {
    /// Not yet; its tokens are to be written with it.
    No(Vec<Digest>),
    Yes,
    Closed,
}

impl SessionJournal {
    pub(super) fn new(journal: &Journal, number: u64, facts: SessionFacts, token: Digest) -> Self {
        Self::with(journal, number, facts, Written::No(vec![token]))
    }

    /// One that stands in the file already.
    pub(super) fn recovered(journal: &Journal, number: u64, facts: SessionFacts) -> Self {
        Self::with(journal, number, facts, Written::Yes)
    }

    fn with(journal: &Journal, number: u64, facts: SessionFacts, written: Written) -> Self {
        Self(Arc::new(Inner {
            journal: journal.clone(),
            number,
            facts,
            written: Mutex::new(written),
        }))
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.0
            .written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a call begins, and its session before it. To be called before anything is done for it.
    pub fn started(&self, call: &ToolCallId, digest: &Digest) {
        self.append(|session| Record::Started {
            session,
            call: call.as_str(),
            digest: *digest,
            at: now_ms(),
        });
    }

    /// Notes what a call came to; nothing where it is too long to stand as one piece in memory. To be called before its result is queued for a harness.
    pub fn finished(&self, call: &ToolCallId, digest: &Digest, result: Option<&[u8]>) {
        let most = self.0.journal.0.limits.journal_result_bytes;
        self.append(|session| Record::Finished {
            session,
            call: call.as_str(),
            digest: *digest,
            at: now_ms(),
            delivered: false,
            result: result.filter(|result| result.len() <= most),
        });
    }

    /// Notes that a harness has the result of a call. Never waits; where too much waits already it is not kept, and
    /// after a restart the result comes again.
    pub fn delivered(&self, call: &ToolCallId) {
        let (session, call) = (self.0.number, call.as_str());
        // Not held against the end of the session: what comes late says nothing to a reader.
        self.0.journal.0.note(&Record::Delivered { session, call });
    }

    /// Notes a further resume token. Never waits.
    pub fn token(&self, digest: Digest) {
        let mut written = self.written();
        if let Written::No(tokens) = &mut *written {
            tokens.push(digest);
            return;
        }
        drop(written);
        let session = self.0.number;
        self.0.journal.0.note(&Record::Token { session, digest });
    }

    /// Notes that the session has ended, with all its calls.
    pub fn closed(&self) {
        let was = std::mem::replace(&mut *self.written(), Written::Closed);
        if matches!(was, Written::Yes) {
            let session = self.0.number;
            self.0.journal.0.append(&Record::Closed { session });
        }
    }

    /// Writes the session's own record unless it is there.
    pub(super) fn open(&self) {
        let mut written = self.written();
        let mut frames = self.0.journal.0.notes.take();
        self.open_into(&mut written, &mut frames);
        self.0.journal.0.append_frames(&frames);
    }

    fn append<'r>(&self, record: impl FnOnce(u64) -> Record<'r>) {
        let mut written = self.written();
        let mut frames = self.0.journal.0.notes.take();
        if self.open_into(&mut written, &mut frames) {
            record(self.0.number).frame(&mut frames);
        }
        // The lock is held, so that no end of the session comes in between.
        self.0.journal.0.append_frames(&frames);
    }

    /// Spells the session's own record unless it is there; returns whether the session is open.
    fn open_into(&self, written: &mut Written, frames: &mut Vec<u8>) -> bool {
        let tokens = match written {
            Written::Yes => return true,
            Written::Closed => return false,
            Written::No(tokens) => std::mem::take(tokens),
        };
        let (session, facts) = (self.0.number, &self.0.facts);
        let opened = Record::Opened {
            session,
            id: facts.id.as_str(),
            workspace: facts.workspace.as_deref(),
            has_env: facts.has_env,
        };
        opened.frame(frames);
        for digest in tokens {
            Record::Token { session, digest }.frame(frames);
        }
        *written = Written::Yes;
        true
    }
}
