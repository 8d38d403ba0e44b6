//! The children of this process: who waits for them, and how each descendant is known as a call's.
//!
//! Children belong to the operating system's process, so this is the one place with process-wide state. It must
//! never wait for any child but by its number: a wait for whichever child ended steals somebody's exit status.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, fchdir, getrlimit,
    kill_process, pidfd_open, setrlimit, waitid,
};
use wait4::ResUse;

use super::launch::{self, Launch};
use super::table::{self, Entry};

/// Marks every process of one call.
///
/// It is kept as the soft limit on the CPU time of real-time processes: children inherit it through `setsid`, double
/// forks and a cleared environment, everyone may read it, and at such a height it limits nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Tag(u64);

/// Bits of a tag that number the calls of one daemon.
const CALL_BITS: u32 = 36;

/// Upper bits of this daemon's tags; random, so that a daemon inside another one's command has tags of its own.
static TAG_SPACE: LazyLock<u64> = LazyLock::new(|| {
    let random = getrandom::u32().unwrap_or_else(|_| std::process::id());
    (1 << 62) | (u64::from(random & 0xff_ffff) << CALL_BITS)
});

static NEXT_CALL: AtomicU64 = AtomicU64::new(1);

/// The children that have a waiter of their own. Spawning and reaping happen under this lock, so that nobody takes
/// a child for an orphan before it is entered here.
static AWAITED: LazyLock<Mutex<HashSet<u32>>> = LazyLock::new(Mutex::default);

/// Where this process stands but for the moment of a start.
static HOME: LazyLock<rustix::io::Result<OwnedFd>> = LazyLock::new(|| launch::directory("."));

/// This process's own limit where a command has its tag.
static OWN_LIMIT: LazyLock<Rlimit> = LazyLock::new(|| getrlimit(Resource::Rttime));

/// Tags are given at the birth of a process, so each is read once: every look at a table with a storm in it would read
/// hundreds again, for each call that ends meanwhile.
static TAGS: LazyLock<Mutex<Tags>> = LazyLock::new(Mutex::default);

/// By number and start time, which name one process for ever.
type Tags = HashMap<(u32, u64), Option<Tag>>;

/// Tags that are remembered; more processes than most machines run at one time.
const KNOWN_TAGS: usize = 4_096;

fn tags() -> MutexGuard<'static, Tags> {
    TAGS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn awaited() -> MutexGuard<'static, HashSet<u32>> {
    AWAITED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tag {
    /// Makes a tag that no other call has.
    pub(super) fn new() -> Self {
        let call = NEXT_CALL.fetch_add(1, Ordering::Relaxed) & ((1 << CALL_BITS) - 1);
        Self(*TAG_SPACE | call)
    }

    /// Returns the tag of a process, where it has one of this daemon's.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        let known = (entry.pid, entry.start);
        let remembered = tags().get(&known).copied();
        if let Some(tag) = remembered {
            return tag;
        }
        let tag = table::rttime_limit(entry.pid)
            .filter(|limit| limit >> CALL_BITS == *TAG_SPACE >> CALL_BITS)
            .map(Self);
        // One that ended meanwhile, or whose number has passed on, has shown no tag or another's.
        if table::read(entry.pid).is_some_and(|now| now.start == entry.start && !now.dead) {
            let mut tags = tags();
            if tags.len() >= KNOWN_TAGS {
                tags.clear();
            }
            tags.insert(known, tag);
        }
        tag
    }
}

/// A child that somebody waits for.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) pid: u32,
    /// Becomes readable when the child has exited.
    pub(super) pidfd: OwnedFd,
    /// Awaited children, this one among them.
    pub(super) running: usize,
}

/// Why a program does not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnError {
    /// It never did.
    #[error("it could not be started")]
    NotStarted(#[source] io::Error),
    /// It was ended when it had just begun.
    #[error("it could not be watched")]
    Unwatched(#[source] io::Error),
}

/// Starts a program as an awaited child with the tag of its call.
///
/// For that moment this process stands where the program is to start: it is the directory that was opened, whatever has become of its
/// name, and looking one up by its descriptor takes the child a hundredth of a millisecond.
pub(super) fn spawn(launch: Launch<'_>, tag: Tag) -> Result<Spawned, SpawnError> {
    let mut awaited = awaited();
    let home = HOME.as_ref();
    fchdir(launch.directory).map_err(|error| SpawnError::NotStarted(error.into()))?;
    let started = start_marked(&launch, tag);
    if let Err(error) = home.map_err(|error| *error).and_then(fchdir) {
        tracing::debug!(%error, "this process stands where it has started a command");
    }
    let pid = started.map_err(SpawnError::NotStarted)?;
    // Where descriptors are scarce, the handle of what has begun takes this one's place.
    drop(launch.stdin);
    match watch(pid) {
        Ok(pidfd) => {
            awaited.insert(pid);
            let running = awaited.len();
            Ok(Spawned {
                pid,
                pidfd,
                running,
            })
        }
        Err(error) => Err(SpawnError::Unwatched(error)),
    }
}

/// Returns what becomes readable when a child has exited. One that cannot be watched must not run on.
fn watch(pid: u32) -> io::Result<OwnedFd> {
    let number = as_pid(pid).ok_or(rustix::io::Errno::SRCH)?;
    let opened = pidfd_open(number, PidfdFlags::empty());
    if opened.is_err() {
        kill_process(number, Signal::KILL)?;
        waitid(WaitId::Pid(number), WaitIdOptions::EXITED)?;
    }
    Ok(opened?)
}

/// Starts a program with a tag; returns its number.
fn start_marked(launch: &Launch<'_>, tag: Tag) -> io::Result<u32> {
    // Set on this process for the moment of the start: set on the child afterwards, it would come too late for
    // descendants that have escaped by then, which a busy machine allows.
    let own = *OWN_LIMIT;
    let marked = setrlimit(
        Resource::Rttime,
        Rlimit {
            current: Some(tag.0),
            ..own
        },
    );
    let started = launch.start();
    if marked.is_err() || setrlimit(Resource::Rttime, own).is_err() {
        // Without the tag the other marks remain: group, parent and what was seen before.
        tracing::debug!("a command carries no tag, or this process carries one");
    }
    started
}

/// Starts a program outside this room, in a process that has it too: what starts while a command does would be taken
/// for a part of that.
pub fn unmarked<R>(start: impl FnOnce() -> R) -> R {
    while_none_starts(start)
}

/// Does something while no command starts: one on its way to its program still has copies of this process's descriptors.
pub(super) fn while_none_starts<R>(work: impl FnOnce() -> R) -> R {
    let _no_command_starts = awaited();
    work()
}

/// Takes the exit status of an awaited child; `None` while it runs.
pub(super) fn reap(pid: u32) -> io::Result<Option<ResUse>> {
    let mut awaited = awaited();
    let ended = wait4::try_wait4_pid(pid);
    if !matches!(ended, Ok(None)) {
        awaited.remove(&pid);
    }
    ended
}

/// Leaves a child that cannot be ended to whoever reaps the adopted.
pub(super) fn abandon(pid: u32) {
    awaited().remove(&pid);
}

/// Returns the children that have a waiter of their own, but for one.
pub(super) fn awaited_but(pid: u32) -> HashSet<u32> {
    let mut others = awaited().clone();
    others.remove(&pid);
    others
}

/// Returns whether this process has children at all, running or dead; one system call.
pub(super) fn any() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, look), Err(rustix::io::Errno::CHILD))
}

/// Returns whether a command whose shell has been reaped can have left anything: at the price of one system call where
/// this process has no children at all, and of a short file where all of them are other calls' shells.
pub(super) fn may_have_adopted() -> bool {
    if !any() {
        return false;
    }
    // Whoever loses its parent becomes, at that moment, a child of this process's first thread, which starts no programs.
    let Some(children) = table::children_of_first_thread() else {
        return true;
    };
    let awaited = awaited();
    !children.iter().all(|pid| awaited.contains(pid))
}

/// Returns whether the process was adopted: a child of ours that nobody here started.
pub(super) fn is_adopted(entry: &Entry) -> bool {
    entry.ppid == std::process::id() && !awaited().contains(&entry.pid)
}

/// Reaps the dead among the adopted that carry a tag of this daemon (as PID 1: all adopted); returns how many
/// are still to come.
pub(super) fn reap_adopted() -> usize {
    let me = std::process::id();
    let mut alive = 0;
    for entry in table::snapshot(&HashSet::new()).entries {
        if entry.ppid != me {
            continue;
        }
        // Held for each one, not for the whole table: a command that starts meanwhile must not wait for that.
        let awaited = awaited();
        // In a process that starts children elsewhere too, an unmarked one has another waiter.
        if awaited.contains(&entry.pid) || (me != 1 && Tag::of(&entry).is_none()) {
            continue;
        }
        if entry.dead {
            reap_by_number(entry.pid);
        } else {
            alive += 1;
        }
    }
    alive
}

fn reap_by_number(pid: u32) {
    if let Some(number) = as_pid(pid) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        if let Err(error) = waitid(WaitId::Pid(number), options) {
            tracing::debug!(%error, pid, "an orphan was reaped by somebody else");
        }
    }
}

/// Returns a process number as the system calls want it.
pub(super) fn as_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}
