//! What the records of a file come to: the sessions that are open, and the calls that are remembered in them.
//!
//! Results stay in the file and are known by their places, so that reading a long journal takes little memory.

use std::collections::{BTreeMap, HashMap};

use super::record::Record;
use super::{Digest, SessionFacts};
use crate::limits::Limits;
use crate::wire::{SessionId, ToolCallId};

/// Where a result stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) at: u64,
    pub(super) length: usize,
}

/// A finished call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) digest: Digest,
    pub(super) at: u64,
    pub(super) delivered: bool,
    pub(super) result: Option<Extent>,
    order: u64,
}

/// An open session.
#[derive(Debug)]
pub(super) struct SessionState {
    pub(super) facts: SessionFacts,
    pub(super) tokens: Vec<Digest>,
    pub(super) running: BTreeMap<ToolCallId, (Digest, u64)>,
    finished: HashMap<ToolCallId, Ended>,
    /// Finished calls, oldest first.
    order: BTreeMap<u64, ToolCallId>,
    /// Calls that may be remembered before some are forgotten.
    forget_at: usize,
}

impl SessionState {
    /// Returns the finished calls, oldest first.
    pub(super) fn finished(&self) -> impl Iterator<Item = (&ToolCallId, &Ended)> {
        self.order
            .values()
            .filter_map(|id| Some((id, self.finished.get(id)?)))
    }

    fn forget(&mut self, id: &ToolCallId) {
        if let Some(ended) = self.finished.remove(id) {
            self.order.remove(&ended.order);
        }
    }
}

/// Everything that a journal says.
#[derive(Debug)]
pub(super) struct State {
    /// The workspace that it belongs to.
    pub(super) root: Vec<u8>,
    /// When the daemon that wrote it was last known to live.
    pub(super) alive: u64,
    pub(super) sessions: BTreeMap<u64, SessionState>,
    /// No session has had this number yet.
    pub(super) next_session: u64,
    ended: u64,
    /// Calls that may be remembered before the next trimming.
    trim_at: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            root: Vec::new(),
            alive: 0,
            sessions: BTreeMap::new(),
            next_session: 1,
            ended: 0,
            trim_at: 0,
        }
    }
}

/// A session is taken up with the token that was shown last, or with one that was not known to have been shown.
const TOKENS_KEPT: usize = 4;

/// Part of a session's calls that is forgotten at one time.
const FORGOTTEN_AT_ONCE: usize = 8;

impl State {
    /// Takes a record in; `result` says where its result stands.
    pub(super) fn apply(&mut self, record: &Record<'_>, result: Option<Extent>, limits: &Limits) {
        match *record {
            Record::Owner { root } => self.root = root.to_vec(),
            Record::Alive { at } => self.alive = self.alive.max(at),
            Record::Opened {
                session,
                id,
                workspace,
                has_env,
            } => self.open(session, id, workspace, has_env),
            Record::Token { session, digest } => {
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.tokens.push(digest);
                    let excess = session.tokens.len().saturating_sub(TOKENS_KEPT);
                    session.tokens.drain(..excess);
                }
            }
            Record::Started {
                session,
                call,
                digest,
                at,
            } => {
                self.alive = self.alive.max(at);
                if let (Some(session), Ok(call)) =
                    (self.sessions.get_mut(&session), ToolCallId::new(call))
                {
                    session.running.insert(call, (digest, at));
                }
            }
            Record::Finished {
                session,
                call,
                digest,
                at,
                delivered,
                result: _,
            } => {
                self.alive = self.alive.max(at);
                let ended = Ended {
                    digest,
                    at,
                    delivered,
                    result,
                    order: self.ended,
                };
                self.finish(session, call, ended, limits);
            }
            Record::Delivered { session, call } => {
                let call = ToolCallId::new(call).ok();
                let session = self.sessions.get_mut(&session);
                if let (Some(session), Some(call)) = (session, call)
                    && let Some(ended) = session.finished.get_mut(&call)
                {
                    ended.delivered = true;
                }
            }
            Record::Closed { session } => {
                self.sessions.remove(&session);
            }
        }
    }

    fn open(&mut self, number: u64, id: &str, workspace: Option<&str>, has_env: bool) {
        let Ok(id) = SessionId::new(id) else { return };
        self.next_session = self.next_session.max(number.saturating_add(1));
        let facts = SessionFacts {
            id,
            workspace: workspace.map(str::to_owned),
            has_env,
        };
        // One id is open once; an older one of the same id was closed when that could not be written.
        self.sessions.retain(|_, other| other.facts.id != facts.id);
        let session = SessionState {
            facts,
            tokens: Vec::new(),
            running: BTreeMap::new(),
            finished: HashMap::new(),
            order: BTreeMap::new(),
            forget_at: 0,
        };
        self.sessions.insert(number, session);
    }

    fn finish(&mut self, session: u64, call: &str, ended: Ended, limits: &Limits) {
        let (Some(session), Ok(call)) = (self.sessions.get_mut(&session), ToolCallId::new(call))
        else {
            return;
        };
        session.running.remove(&call);
        session.forget(&call);
        session.order.insert(self.ended, call.clone());
        session.finished.insert(call, ended);
        self.ended += 1;
        // A part more than may be remembered, so that not every call looks for one to forget.
        let most = limits.max_finished_calls;
        if session.finished.len() > most.max(session.forget_at) {
            forget_beyond(session, most);
            session.forget_at = session.finished.len() + most / FORGOTTEN_AT_ONCE;
        }
        if self.ended >= self.trim_at {
            let now = self.alive;
            self.trim(now, limits);
            self.trim_at = self.ended + limits.max_remembered_calls as u64;
        }
    }

    /// Forgets what is beyond the bounds of memory and time.
    pub(super) fn trim(&mut self, now: u64, limits: &Limits) {
        let ttl = u64::try_from(limits.finished_ttl.as_millis()).unwrap_or(u64::MAX);
        for session in self.sessions.values_mut() {
            forget(session, usize::MAX, |ended| {
                ended.delivered && now.saturating_sub(ended.at) >= ttl
            });
            forget_beyond(session, limits.max_finished_calls);
            give_up_results(session, limits.max_kept_results);
        }
        self.forget_oldest(limits.max_remembered_calls);
        self.give_up_bytes(limits.result_memory_bytes);
    }

    /// Forgets the oldest delivered calls of all sessions, down to a number.
    fn forget_oldest(&mut self, most: usize) {
        let count: usize = self.sessions.values().map(|one| one.finished.len()).sum();
        let excess = count.saturating_sub(most);
        if excess == 0 {
            return;
        }
        let mut old: Vec<_> = self
            .finished_calls()
            .filter(|(_, _, ended)| ended.delivered)
            .map(|(number, id, ended)| (ended.at, ended.order, number, id.clone()))
            .collect();
        old.sort_unstable();
        for (_, _, number, id) in old.into_iter().take(excess) {
            if let Some(session) = self.sessions.get_mut(&number) {
                session.forget(&id);
            }
        }
    }

    /// Gives up results, delivered and old ones first, down to a number of bytes.
    fn give_up_bytes(&mut self, most: usize) {
        let mut held: Vec<_> = self
            .finished_calls()
            .filter_map(|(number, id, ended)| {
                let length = ended.result?.length;
                Some((!ended.delivered, ended.at, number, id.clone(), length))
            })
            .collect();
        let mut bytes: usize = held.iter().map(|(.., length)| length).sum();
        if bytes <= most {
            return;
        }
        held.sort_unstable();
        for (_, _, number, id, length) in held {
            if bytes <= most {
                return;
            }
            let session = self.sessions.get_mut(&number);
            if let Some(ended) = session.and_then(|session| session.finished.get_mut(&id)) {
                ended.result = None;
                bytes -= length;
            }
        }
    }

    fn finished_calls(&self) -> impl Iterator<Item = (u64, &ToolCallId, &Ended)> {
        self.sessions.iter().flat_map(|(number, session)| {
            session
                .finished()
                .map(move |(id, ended)| (*number, id, ended))
        })
    }
}

/// Forgets the oldest delivered calls of a session, down to a number.
fn forget_beyond(session: &mut SessionState, most: usize) {
    let excess = session.finished.len().saturating_sub(most);
    forget(session, excess, |ended| ended.delivered);
}

/// Forgets at most `count` calls that fit, oldest first.
fn forget(session: &mut SessionState, count: usize, fits: impl Fn(&Ended) -> bool) {
    if count == 0 {
        return;
    }
    let gone: Vec<_> = session
        .finished()
        .filter(|(_, ended)| fits(ended))
        .take(count)
        .map(|(id, _)| id.clone())
        .collect();
    for id in gone {
        session.forget(&id);
    }
}

/// Gives up the oldest results that no harness has, down to a number.
fn give_up_results(session: &mut SessionState, most: usize) {
    let waiting = |ended: &Ended| !ended.delivered && ended.result.is_some();
    let count = session.finished().filter(|(_, one)| waiting(one)).count();
    let old: Vec<_> = session
        .finished()
        .filter(|(_, one)| waiting(one))
        .take(count.saturating_sub(most))
        .map(|(id, _)| id.clone())
        .collect();
    for id in old {
        if let Some(ended) = session.finished.get_mut(&id) {
            ended.result = None;
        }
    }
}
