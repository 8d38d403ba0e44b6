//! The walk that every search shares: by directory handles, below one base, links never followed.
//!
//! An entry is opened from the handle of the directory it was read from, so no exchange of directories and links
//! leads outside. A small tree is walked on one thread, a large one by a few. The walk decides what is visited; what is
//! wanted of it is the [`Visitor`]'s business.

mod batch;
mod ignores;
mod stack;
#[cfg(test)]
mod tests;
mod worker;

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

pub(crate) use batch::{Batch, Kind, kind_of};

use self::ignores::Rules;
use self::stack::{Node, Stack, identity};
use self::worker::{Walker, Worker};
use super::resolve::Directory;
use crate::limits::Limits;
use crate::stop::Stop;

/// Where a walk begins.
#[derive(Debug)]
pub(crate) struct Base {
    /// The workspace, for the rules above the base.
    pub(crate) root: Directory,
    /// The directory itself.
    pub(crate) dir: OwnedFd,
    /// Its path relative to the workspace, without a slash at its end; empty for the workspace.
    pub(crate) path: Vec<u8>,
}

/// One entry of a directory.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    parent: BorrowedFd<'a>,
    /// Its name.
    pub(crate) name: &'a CStr,
    /// Its path relative to the workspace.
    pub(crate) path: &'a [u8],
    /// Its path relative to the base.
    pub(crate) below: &'a [u8],
    /// Directories between it and the base.
    pub(crate) depth: usize,
    /// What it is.
    pub(crate) kind: Kind,
}

/// Whether an entry is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// It is not.
    No,
    /// It is, unless an ignore file leaves it out.
    UnlessIgnored,
    /// The caller spelled it out: no rule hides it.
    Spelled,
}

/// What one thread of a search does with entries.
pub(crate) trait Visitor: Send {
    /// Whether [`Self::take`] is to be called with this entry.
    fn claim(&self, entry: &Entry<'_>) -> Claim;
    /// Whether this directory is to be entered.
    fn descend(&self, entry: &Entry<'_>) -> Claim;
    /// Takes an entry that was claimed.
    fn take(&mut self, entry: &Entry<'_>);
    /// Takes note of a directory that cannot be read.
    fn unreadable(&mut self, path: &[u8], why: Errno);
    /// Takes note of an entry that an ignore file left out.
    fn ignored(&mut self);
}

/// How far a search has come, for whoever watches it.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Entries seen.
    pub(crate) entries: AtomicU64,
    /// Files opened.
    pub(crate) files: AtomicU64,
    /// Bytes read.
    pub(crate) bytes: AtomicU64,
    /// Hits found.
    pub(crate) hits: AtomicU64,
}

impl Entry<'_> {
    /// Opens a file for reading, and returns its size. `None` where something else stands there by now.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn open(&self) -> Result<Option<(File, u64)>, Errno> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(self.parent, self.name, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
            other => other?,
        };
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        Ok(Some((
            file.into(),
            u64::try_from(stat.st_size).unwrap_or(0),
        )))
    }
}

/// Walks everything below `base` and returns the visitors, one for each thread that took part.
pub(crate) fn walk<V: Visitor>(
    base: Base,
    limits: &Limits,
    stop: &Stop,
    tally: &Tally,
    make: impl Fn() -> V + Sync,
) -> Result<Vec<V>, Errno> {
    let rules = Rules::for_base(
        base.root.as_fd(),
        base.dir.as_fd(),
        &base.path,
        limits.ignore_file_bytes,
    );
    let mut path = base.path;
    if !path.is_empty() {
        path.push(b'/');
    }
    let node = Arc::new(Node {
        path,
        depth: 0,
        rules,
        id: identity(&base.dir)?,
    });
    let walker = Walker {
        base_len: node.path.len(),
        stack: Stack::new(base.dir, node, limits.search_handles),
        limits,
        stop,
        tally,
    };
    let mut first = Worker::new(make());
    first.run(&walker, Some(limits.search_serial_entries));
    if !walker.stack.has_more() {
        return Ok(vec![first.visitor]);
    }
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(limits.search_threads);
    let mut visitors = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .filter_map(|_| {
                let (walker, make) = (&walker, &make);
                // Without a thread the others do its work.
                std::thread::Builder::new()
                    .name("search".into())
                    .spawn_scoped(scope, move || {
                        let mut worker = Worker::new(make());
                        worker.run(walker, None);
                        worker.visitor
                    })
                    .ok()
            })
            .collect();
        first.run(&walker, None);
        let mut visitors = Vec::new();
        for other in others {
            match other.join() {
                Ok(visitor) => visitors.push(visitor),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        visitors
    });
    visitors.push(first.visitor);
    Ok(visitors)
}
