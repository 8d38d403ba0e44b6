//! The processes of one call, found wherever they went, and their end.
//!
//! It must never signal by number alone: a number may have passed to a stranger since it was read.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::children::{self, Tag};
use super::table::{self, Entry};

/// Rounds of stopping before a kill. A fork storm needs several, since a process not yet seen goes on forking.
const STOP_ROUNDS: usize = 8;

/// Looks that find nothing before that is believed while processes come and go.
const EMPTY_LOOKS: usize = 8;

/// How long the newest processes are watched after a kill. A chain whose links start the next one and end is seen by no
/// pass over the whole table, but each link lives long enough to be met by its number.
const CHASE: Duration = Duration::from_millis(5);

/// Turns of looking at the newest numbers; on a machine where strangers start all the time it would not end by itself.
const CHASE_TURNS: usize = 256;

/// New numbers looked at in one turn of the chase; with more than these the count has started again.
const CHASED_NUMBERS: u32 = 10_000;

/// The processes of one call.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    tag: Tag,
    /// The number of the shell, which is the number of its group too.
    shell: u32,
    /// Every process once found here, by number and start time: it stays a member when it leaves the group and its
    /// parent ends.
    seen: HashMap<u32, u64>,
    /// What was signalled, so that the dead can be counted.
    signalled: HashSet<(u32, u64)>,
}

impl Tree {
    /// Makes the tree of a shell that has just been started.
    pub(super) fn new(tag: Tag, shell: u32) -> Self {
        Self {
            tag,
            shell,
            seen: HashMap::new(),
            signalled: HashSet::new(),
        }
    }

    /// Counts the shell among the members. It must not have been reaped; afterwards its number may be a stranger's.
    pub(super) fn with_shell(mut self) -> Self {
        let shell = table::read(self.shell).filter(|entry| entry.ppid == std::process::id());
        self.seen
            .extend(shell.map(|entry| (entry.pid, entry.start)));
        self
    }

    /// Returns the living members; finding none must be no accident.
    ///
    /// The table is not read at one instant: a member that forked after the listing and ended before it was looked at
    /// hides its child. So an empty look counts only where nothing can have been missed, and what was started
    /// meanwhile is asked for by its number.
    pub(super) fn alive(&mut self) -> Vec<Entry> {
        for _ in 0..EMPTY_LOOKS {
            let newest = table::newest_pid();
            let table = table::snapshot(&children::awaited_but(self.shell));
            let (alive, dead) = self.members(&table.entries);
            if !alive.is_empty() || !(table.started && (dead || table.ended)) {
                return alive;
            }
            let late = self.started_after(newest);
            if !late.is_empty() {
                return late;
            }
        }
        Vec::new()
    }

    /// Returns the living members with numbers above one. A chain of short-lived members cannot slip through: the
    /// successor of one that has ended meanwhile has a number of the next turn.
    fn started_after(&mut self, mut last: Option<u32>) -> Vec<Entry> {
        for _ in 0..CHASE_TURNS {
            let (Some(from), Some(newest)) = (last, table::newest_pid()) else {
                break;
            };
            if newest <= from || newest - from > CHASED_NUMBERS {
                break;
            }
            let mine = |entry: &Entry| !entry.dead && Tag::of(entry) == Some(self.tag);
            let found: Vec<Entry> = (from + 1..=newest)
                .filter_map(table::read)
                .filter(mine)
                .collect();
            if !found.is_empty() {
                self.seen
                    .extend(found.iter().map(|entry| (entry.pid, entry.start)));
                return found;
            }
            last = Some(newest);
        }
        Vec::new()
    }

    /// Returns what is left of a call whose shell has ended and been reaped within `short_lived`.
    pub(super) fn left_over(&mut self, short_lived: bool) -> Vec<Entry> {
        // Numbers are given in ascending order, so the descendants of a call that has just begun lie above its
        // shell's, unless the count has started again from the bottom.
        let others = children::awaited_but(self.shell);
        match table::started_after(self.shell, &others).filter(|_| short_lived) {
            Some(table) => self.members(&table.entries).0,
            None => self.alive(),
        }
    }

    /// Picks the living members out of a table, the roots and everything below them, and tells whether dead ones
    /// were among them.
    fn members(&mut self, table: &[Entry]) -> (Vec<Entry>, bool) {
        let mut below: HashMap<u32, Vec<&Entry>> = HashMap::new();
        for entry in table {
            below.entry(entry.ppid).or_default().push(entry);
        }
        let mut found: Vec<Entry> = Vec::new();
        let mut known = HashSet::new();
        let mut open: Vec<&Entry> = table.iter().filter(|entry| self.is_root(entry)).collect();
        while let Some(entry) = open.pop() {
            if known.insert(entry.pid) {
                found.push(*entry);
                open.extend(below.get(&entry.pid).into_iter().flatten());
            }
        }
        let all = found.len();
        found.retain(|entry| !entry.dead);
        let dead = found.len() < all;
        self.seen
            .extend(found.iter().map(|entry| (entry.pid, entry.start)));
        found.sort_unstable_by_key(|entry| entry.pid);
        (found, dead)
    }

    fn is_root(&self, entry: &Entry) -> bool {
        if self.seen.get(&entry.pid) == Some(&entry.start) {
            return true;
        }
        // Everything else that belongs here and has lost its parent was adopted by this process.
        if !children::is_adopted(entry) {
            return false;
        }
        Tag::of(entry).map_or(entry.pgid == self.shell, |tag| tag == self.tag)
    }

    /// Asks the members to end; returns them.
    pub(super) fn terminate(&mut self) -> Vec<Entry> {
        self.ask(|_| true)
    }

    /// Asks those that were started while the others were asked, and have lost whoever started them; returns all living members.
    /// What a member starts to put its own things in order has a living parent, and is left at it.
    pub(super) fn terminate_late(&mut self) -> Vec<Entry> {
        self.ask(children::is_adopted)
    }

    /// Asks each living member of a kind once; returns all of them.
    fn ask(&mut self, kind: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let members = self.alive();
        for member in members.iter().filter(|member| kind(member)) {
            if self.signalled.contains(&(member.pid, member.start)) {
                continue;
            }
            self.signal(member, Signal::TERM);
            // A stopped process takes the signal only when it goes on.
            self.signal(member, Signal::CONT);
        }
        members
    }

    /// Kills every member found, new ones included; returns what was alive at the start of the round.
    pub(super) fn kill_round(&mut self) -> Vec<Entry> {
        let newest = table::newest_pid();
        let first = self.alive();
        let mut members = first.clone();
        for _ in 0..STOP_ROUNDS {
            for member in &members {
                self.signal(member, Signal::STOP);
            }
            let before: HashSet<u32> = members.iter().map(|member| member.pid).collect();
            members = self.alive();
            if members.iter().all(|member| before.contains(&member.pid)) {
                break;
            }
        }
        for member in &members {
            self.signal(member, Signal::KILL);
        }
        if !first.is_empty() {
            self.chase(newest);
        }
        first
    }

    /// Kills members that were started after a number, as soon as they appear.
    fn chase(&mut self, mut last: Option<u32>) {
        let until = Instant::now() + CHASE;
        while Instant::now() < until {
            for member in self.started_after(last) {
                self.signal(&member, Signal::KILL);
                last = last.max(Some(member.pid));
            }
        }
    }

    /// Kills the named members only. They are the caller's to count, and are not counted again when the tree ends.
    pub(super) fn kill_these(&mut self, members: &[Entry]) {
        for member in members {
            self.signal(member, Signal::KILL);
            self.signalled.remove(&(member.pid, member.start));
        }
    }

    /// Returns how many processes were signalled and are gone.
    pub(super) fn killed(&self, survivors: &[Entry]) -> u64 {
        let alive = |pid: &u32, start: &u64| {
            survivors
                .iter()
                .any(|entry| entry.pid == *pid && entry.start == *start)
        };
        let gone = self
            .signalled
            .iter()
            .filter(|(pid, start)| !alive(pid, start));
        gone.count() as u64
    }

    fn signal(&mut self, member: &Entry, signal: Signal) {
        let Some(number) = children::as_pid(member.pid) else {
            return;
        };
        let Ok(handle) = pidfd_open(number, PidfdFlags::empty()) else {
            return;
        };
        // The handle names whoever has the number now; only the start time tells whether that is still the member.
        if table::read(member.pid).is_none_or(|now| now.start != member.start || now.dead) {
            return;
        }
        match pidfd_send_signal(&handle, signal) {
            Ok(()) => {
                self.signalled.insert((member.pid, member.start));
            }
            Err(error) => {
                tracing::debug!(%error, pid = member.pid, "a process cannot be signalled");
            }
        }
    }
}
