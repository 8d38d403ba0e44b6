//! Temporary files that a killed daemon left behind.
//!
//! Only files that bear exactly the name of one and have no living owner are removed. The owner's lock alone tells: a
//! time would keep what a daemon left that was killed a moment ago.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, unlinkat,
};

use super::Workspace;
use super::temp::is_temp_name;
use crate::stop::Stop;

/// Directories open at one time; what lies deeper is not looked at.
const MAX_DEPTH: usize = 128;

impl Workspace {
    /// Removes leftovers below the workspace, for at most `time`; returns how many. Blocks: run it in a blocking job.
    pub fn remove_leftovers(&self, time: Duration, stop: &Stop) -> u64 {
        let Some(deadline) = Instant::now().checked_add(time) else {
            return 0;
        };
        let mut removed = 0;
        let mut open_dirs: Vec<Dir> = enter(&self.0.handle, b".").into_iter().collect();
        loop {
            let depth = open_dirs.len();
            let Some(directory) = open_dirs.last_mut() else {
                break;
            };
            if stop.cause().is_some() || Instant::now() >= deadline {
                break;
            }
            let Some(Ok(entry)) = directory.read() else {
                open_dirs.pop();
                continue;
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let Ok(parent) = directory.fd() else { continue };
            let kind = entry.file_type();
            if is_temp_name(name) && matches!(kind, FileType::RegularFile | FileType::Unknown) {
                removed += u64::from(remove(parent, name));
            } else if matches!(kind, FileType::Directory | FileType::Unknown) && depth < MAX_DEPTH {
                let below = enter(parent, name);
                open_dirs.extend(below);
            }
        }
        removed
    }
}

fn enter(parent: impl std::os::fd::AsFd, name: &[u8]) -> Option<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle: OwnedFd = openat(parent, name, flags, Mode::empty()).ok()?;
    Dir::new(handle).ok()
}

fn remove(parent: impl std::os::fd::AsFd, name: &[u8]) -> bool {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |access| openat(&parent, name, flags | access, Mode::empty());
    // One that had got its target's mode already may be closed to readers.
    let Ok(handle) = open(OFlags::RDONLY).or_else(|_denied| open(OFlags::WRONLY)) else {
        return false;
    };
    let is_file = fstat(&handle)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    // Held until the name is gone: see `Temp::create`, the other side of this.
    is_file
        && flock(&handle, FlockOperation::NonBlockingLockExclusive).is_ok()
        && unlinkat(&parent, name, AtFlags::empty()).is_ok()
}
