//! The process table as `/proc` shows it, read in one pass.
//!
//! It must never decide what to do with a process, nor trust a number it has read before: a number means a
//! process only together with its start time.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::LazyLock;

use rustix::fs::{Dir, Mode, OFlags, open, openat};

/// What a listing shows of a command line, in bytes.
const COMMAND_BYTES: usize = 200;

/// Numbers that are asked for one by one; listing the table costs as much as this many on a small machine.
const ASKED_NUMBERS: u32 = 64;

/// One process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) pid: u32,
    pub(super) ppid: u32,
    pub(super) pgid: u32,
    /// Start time in clock ticks since boot; with the number it names one process for ever.
    pub(super) start: u64,
    /// On its way out: it runs nothing any more.
    pub(super) ending: bool,
    /// Exited, and only waiting to be reaped.
    pub(super) dead: bool,
}

/// `PF_EXITING` among the flags of `proc_pid_stat(5)`.
const ENDING: u64 = 0x4;

static PROC: LazyLock<Option<OwnedFd>> = LazyLock::new(|| {
    open(
        "/proc",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()
});

/// The table as one pass found it.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) entries: Vec<Entry>,
    /// Whether a process ended while the table was read.
    pub(super) ended: bool,
    /// Whether one was started while the table was read, so that it may be missing.
    pub(super) started: bool,
}

/// Reads the whole table without `skipped`.
pub(super) fn snapshot(skipped: &HashSet<u32>) -> Snapshot {
    let newest = newest_pid();
    let mut snapshot = Snapshot::default();
    let Some(dir) = PROC.as_ref().and_then(|proc| Dir::read_from(proc).ok()) else {
        return snapshot;
    };
    let numbers = dir
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str().ok()?.parse::<u32>().ok())
        .filter(|pid| !skipped.contains(pid));
    for pid in numbers {
        match read(pid) {
            Some(entry) => snapshot.entries.push(entry),
            None => snapshot.ended = true,
        }
    }
    snapshot.started = newest.is_none() || newest_pid() != newest;
    snapshot
}

/// Reads the processes that were started after one, without `skipped`, where they are few enough to ask for each
/// number; that is cheaper than listing the table.
pub(super) fn started_after(first: u32, skipped: &HashSet<u32>) -> Option<Snapshot> {
    let mut snapshot = Snapshot::default();
    let mut next = first.checked_add(1)?;
    // What was started during one turn is read in the next.
    loop {
        let newest = newest_pid()?;
        if newest < first || newest - first > ASKED_NUMBERS {
            return None;
        }
        if next > newest {
            return Some(snapshot);
        }
        let asked = (next..=newest).filter(|pid| !skipped.contains(pid));
        // Threads have numbers too.
        snapshot
            .entries
            .extend(asked.filter_map(read).filter(|entry| is_process(entry.pid)));
        next = newest + 1;
    }
}

fn is_process(pid: u32) -> bool {
    let mut buffer = [0; 4096];
    let text = file(pid, "status", &mut buffer).and_then(|text| std::str::from_utf8(text).ok());
    let group = text.and_then(|text| text.lines().find_map(|line| line.strip_prefix("Tgid:")));
    group.and_then(|group| group.trim().parse().ok()) == Some(pid)
}

/// Reads one process; `None` where there is none.
pub(super) fn read(pid: u32) -> Option<Entry> {
    let mut buffer = [0; 1024];
    let text = file(pid, "stat", &mut buffer)?;
    // The name is free text in parentheses, so the fields are counted from the last closing one.
    let fields = text.get(memchr::memrchr(b')', text)? + 2..)?;
    let mut fields = std::str::from_utf8(fields).ok()?.split(' ');
    let state = fields.next()?;
    Some(Entry {
        pid,
        ppid: fields.next()?.parse().ok()?,
        pgid: fields.next()?.parse().ok()?,
        // flags are field 9 of proc_pid_stat(5), starttime is field 22; the iterator stands before field 6.
        ending: fields.nth(3)?.parse::<u64>().ok()? & ENDING != 0,
        start: fields.nth(12)?.parse().ok()?,
        dead: matches!(state, "Z" | "X" | "x"),
    })
}

/// Reads the soft limit on real-time CPU of a process, which carries the tag of the call that it belongs to.
pub(super) fn rttime_limit(pid: u32) -> Option<u64> {
    let mut buffer = [0; 4096];
    let text = std::str::from_utf8(file(pid, "limits", &mut buffer)?).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("Max realtime timeout"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// Returns the command line of a process on one line, shortened.
pub(super) fn command_line(pid: u32) -> String {
    let mut buffer = [0; COMMAND_BYTES];
    let shown = file(pid, "cmdline", &mut buffer)
        .filter(|text| !text.is_empty())
        .map(<[u8]>::to_vec)
        .or_else(|| file(pid, "comm", &mut buffer).map(<[u8]>::to_vec))
        .unwrap_or_default();
    let shown: String = String::from_utf8_lossy(&shown)
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect();
    shown.trim().to_owned()
}

/// Returns the children of the first thread of this process; nothing where the kernel does not tell, see
/// `proc_pid_task_tid_children(5)`.
pub(super) fn children_of_first_thread() -> Option<Vec<u32>> {
    let mut buffer = [0; 4096];
    let text = at(
        &format!("self/task/{}/children", std::process::id()),
        &mut buffer,
    )?;
    // A full buffer may hold half a list.
    let text = std::str::from_utf8(text)
        .ok()
        .filter(|text| text.len() < 4096)?;
    text.split_whitespace()
        .map(|pid| pid.parse().ok())
        .collect()
}

/// Returns the peak memory of this process.
pub(super) fn own_peak_bytes() -> Option<u64> {
    let mut buffer = [0; 4096];
    let text = std::str::from_utf8(at("self/status", &mut buffer)?).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Returns the resident memory of this process in bytes.
pub(super) fn own_resident_bytes() -> Option<u64> {
    let mut buffer = [0; 128];
    let text = std::str::from_utf8(at("self/statm", &mut buffer)?).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

/// Returns the number of descriptors that this process has open.
pub(super) fn own_descriptors() -> Option<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(PROC.as_ref()?, "self/fd", flags, Mode::empty()).ok()?;
    let entries = Dir::new(directory).ok()?.filter_map(Result::ok);
    // Two entries are no descriptors, and one is that of this listing.
    (entries.count() as u64).checked_sub(3)
}

/// Returns the number of threads of this process.
pub(super) fn own_threads() -> Option<u64> {
    let mut buffer = [0; 1024];
    let text = at("self/stat", &mut buffer)?;
    let fields = text.get(memchr::memrchr(b')', text)? + 2..)?;
    // num_threads is field 20 of proc_pid_stat(5); the iterator stands before field 3.
    let mut fields = std::str::from_utf8(fields).ok()?.split(' ');
    fields.nth(17)?.parse().ok()
}

/// Returns the number given to the newest process or thread.
pub(super) fn newest_pid() -> Option<u32> {
    let mut buffer = [0; 128];
    let text = std::str::from_utf8(at("loadavg", &mut buffer)?).ok()?;
    text.split_whitespace().next_back()?.parse().ok()
}

fn file<'b>(pid: u32, name: &str, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    at(&format!("{pid}/{name}"), buffer)
}

fn at<'b>(path: &str, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(
        PROC.as_ref()?,
        OsStr::from_bytes(path.as_bytes()),
        flags,
        Mode::empty(),
    );
    let mut filled = 0;
    let file = file.ok()?;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(&file, rest).ok()? {
            0 => break,
            got => filled += got,
        }
    }
    buffer.get(..filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_this_process_with_its_parent() {
        let me = std::process::id();
        let entry = snapshot(&HashSet::new())
            .entries
            .into_iter()
            .find(|entry| entry.pid == me)
            .unwrap();
        assert_eq!(Some(entry), read(me));
        assert_eq!(entry.ppid, std::os::unix::process::parent_id());
        assert!(!entry.dead && entry.start > 0);
        assert!(!command_line(me).is_empty());
        assert!(newest_pid().is_some());
    }
}
