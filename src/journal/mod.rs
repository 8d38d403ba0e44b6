//! What must outlive the daemon: which sessions there are, which calls began, and what they came to.
//!
//! One file in the state directory, to which a record is appended at each change of state. A record is one write(2) into
//! the page cache: it survives the death of the daemon by whatever signal, not a loss of power. Inputs, variables and
//! resume tokens are never in it, only digests; results are, as far as they are small.
//!
//! Where the file cannot be had or fails, the journal goes on in memory: nothing is kept, and everybody is told.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::limits::Limits;
use crate::wire::{SessionId, ToolCallId};

/// Identifies a text or a call without keeping it (SHA-256).
pub type Digest = [u8; 32];

/// The journal of one daemon. Cloning is cheap; every clone is the same journal.
#[derive(Debug, Clone)]
pub struct Journal(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Why nothing is kept, where that is so.
    lost: watch::Sender<Option<String>>,
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

/// The journal of one session. Cloning is cheap; every clone is the same session's.
#[derive(Debug, Clone)]
pub struct SessionJournal(Arc<SessionInner>);

#[derive(Debug)]
struct SessionInner {
    _journal: Journal,
}

/// What a journal held when it was opened.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The sessions, in no order.
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
            lost: watch::Sender::new(Some(reason.into())),
        }))
    }

    /// Opens the journal in a directory that no other daemon uses, and returns what it held of the same workspace.
    ///
    /// Where it cannot be used the journal is one in memory; a damaged file is used as far as it is whole.
    pub fn open(_directory: &Path, _workspace: &Path, _limits: &Arc<Limits>) -> (Self, Recovered) {
        (
            Self::memory("the journal is not built yet"),
            Recovered::default(),
        )
    }

    /// Returns why nothing is kept, where that is so.
    pub fn lost(&self) -> Option<String> {
        self.0.lost.borrow().clone()
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
    pub fn sever(&self) {}

    /// Begins the journal of a session that is new. Never waits.
    pub fn session(&self, _facts: SessionFacts, _token: Digest) -> SessionJournal {
        SessionJournal(Arc::new(SessionInner {
            _journal: self.clone(),
        }))
    }

    /// Notes that the daemon lives. To be called about every half minute.
    pub fn alive(&self) {}
}

impl SessionJournal {
    /// Notes that a call begins, and its session before it. To be called before anything is done for it.
    pub fn started(&self, _call: &ToolCallId, _digest: &Digest) {}

    /// Notes what a call came to. To be called before its result is queued for a harness.
    pub fn finished(&self, _call: &ToolCallId, _digest: &Digest, _result: &[u8]) {}

    /// Notes that a harness has the result of a call. Never waits; in a rare case it is not kept.
    pub fn delivered(&self, _call: &ToolCallId) {}

    /// Notes a further resume token. Never waits.
    pub fn token(&self, _token: &Digest) {}

    /// Notes that the session has ended, with all its calls.
    pub fn closed(&self) {}
}
