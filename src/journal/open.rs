//! The start: what the last daemon left is read, cut where it is damaged, and written anew within the bounds.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::file::{self, Appended};
use super::notes::Notes;
use super::replay::{SessionState, State};
use super::session::SessionJournal;
use super::{Inner, Journal, Recovered, RecoveredCall, RecoveredSession, now_ms, worker};
use crate::limits::Limits;
use crate::metrics::JournalCounts;

impl Journal {
    /// Opens the journal in a directory that no other daemon uses, and returns what it held of the same workspace.
    ///
    /// Where it cannot be used the journal is one in memory; a damaged file is used as far as it is whole.
    pub fn open(directory: &Path, workspace: &Path, limits: &Arc<Limits>) -> (Self, Recovered) {
        match open(directory, workspace, limits) {
            Ok(opened) => opened,
            Err(error) => {
                let place = file::path(directory);
                let reason = format!("the journal `{}` cannot be used: {error}", place.display());
                (Self::memory(reason), Recovered::default())
            }
        }
    }
}

fn open(
    directory: &Path,
    workspace: &Path,
    limits: &Arc<Limits>,
) -> io::Result<(Journal, Recovered)> {
    let now = now_ms();
    let old = file::open_old(directory)?;
    let mut state = match &old {
        Some(old) => read_old(old, limits)?,
        None => State::default(),
    };
    let root = workspace.as_os_str().as_bytes();
    if state.root != root {
        if !state.sessions.is_empty() {
            tracing::warn!("the journal is of another workspace and is begun anew");
            state.sessions.clear();
        }
        state.root = root.to_vec();
    }
    let gone = Duration::from_millis(now.saturating_sub(state.alive));
    if gone >= limits.session_ttl {
        state.sessions.clear();
    }
    state.alive = now;
    state.trim(now, limits);
    let new = file::write_new(directory, &state, old.as_ref())?;
    let appended = Appended::new(new, limits)?;
    file::take_place(directory)?;
    let (sender, jobs) = sync_channel(limits.journal_queue);
    let journal = Journal(Arc::new(Inner {
        limits: Arc::clone(limits),
        directory: directory.to_owned(),
        lost: watch::Sender::new(None),
        file: Mutex::new(Some(appended)),
        notes: Notes::default(),
        jobs: Some(sender),
        renewing: AtomicBool::new(false),
        next_session: AtomicU64::new(state.next_session),
        counts: JournalCounts::default(),
    }));
    let weak = Arc::downgrade(&journal.0);
    std::thread::Builder::new()
        .name("journal".to_owned())
        .spawn(move || worker::run(&weak, &jobs))?;
    let recovered = recover(&journal, state, old.as_ref(), now, gone)?;
    Ok((journal, recovered))
}

fn read_old(old: &File, limits: &Limits) -> io::Result<State> {
    let length = old.metadata()?.len();
    let read = file::read(old, length, limits)?;
    if read.damaged {
        tracing::warn!(
            whole_bytes = read.whole,
            bytes = length,
            "the journal is damaged; it is used as far as it is whole"
        );
    }
    Ok(read.state)
}

fn recover(
    journal: &Journal,
    state: State,
    old: Option<&File>,
    now: u64,
    gone: Duration,
) -> io::Result<Recovered> {
    let mut sessions = Vec::new();
    for (number, session) in state.sessions {
        let finished = finished(&session, old, now)?;
        let kept = SessionJournal::recovered(journal, number, session.facts.clone());
        let running = session.running.into_iter();
        sessions.push(RecoveredSession {
            facts: session.facts,
            tokens: session.tokens,
            age: gone,
            interrupted: running.map(|(id, (digest, _))| (id, digest)).collect(),
            finished,
            journal: kept,
        });
    }
    Ok(Recovered { sessions })
}

fn finished(
    session: &SessionState,
    old: Option<&File>,
    now: u64,
) -> io::Result<Vec<RecoveredCall>> {
    let mut finished = Vec::new();
    for (id, ended) in session.finished() {
        let result = match (ended.result, old) {
            (Some(extent), Some(old)) => Some(file::result(old, extent)?.into()),
            _ => None,
        };
        finished.push(RecoveredCall {
            id: id.clone(),
            digest: ended.digest,
            age: Duration::from_millis(now.saturating_sub(ended.at)),
            delivered: ended.delivered,
            result,
        });
    }
    Ok(finished)
}
