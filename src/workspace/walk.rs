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

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

pub(crate) use batch::{Batch, Kind, kind_of};

use self::ignores::Rules;
use self::stack::{Child, DIRECTORY, Node, Stack, Task, identity};
use crate::limits::Limits;
use crate::stop::Stop;

/// Where a walk begins.
#[derive(Debug)]
pub(crate) struct Base {
    /// The workspace, for the rules above the base.
    pub(crate) root: OwnedFd,
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
    let rules = Rules::for_base(base.root.as_fd(), &base.path, limits.ignore_file_bytes);
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

struct Walker<'a> {
    base_len: usize,
    stack: Stack,
    limits: &'a Limits,
    stop: &'a Stop,
    tally: &'a Tally,
}

struct Worker<V> {
    visitor: V,
    batch: Batch,
    path: Vec<u8>,
}

/// Gives a task back also when the visitor panics: the others must not wait for it.
struct Taken<'a>(&'a Stack);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.finish();
    }
}

impl<V: Visitor> Worker<V> {
    fn new(visitor: V) -> Self {
        Self {
            visitor,
            batch: Batch::new(),
            path: Vec::new(),
        }
    }

    /// Works until nothing is left, or until `entries` were seen in all.
    fn run(&mut self, walker: &Walker<'_>, entries: Option<u64>) {
        while entries.is_none_or(|most| walker.tally.entries.load(Ordering::Relaxed) < most) {
            if walker.stop.cause().is_some() {
                walker.stack.abandon();
            }
            let Some((node, handle, task)) = walker.stack.take() else {
                return;
            };
            let taken = Taken(&walker.stack);
            if let Err(why) = self.step(walker, &node, handle, task) {
                let path = node.path.strip_suffix(b"/").unwrap_or(b".");
                self.visitor.unreadable(path, why);
            }
            drop(taken);
        }
    }

    fn step(
        &mut self,
        walker: &Walker<'_>,
        node: &Arc<Node>,
        handle: Option<Arc<OwnedFd>>,
        task: Task,
    ) -> Result<(), Errno> {
        let handle = match handle {
            Some(open) => open,
            None => walker.stack.reopen(node)?,
        };
        match task {
            Task::Rest(from) => self.read(walker, node, &handle, from),
            Task::Child(child) => {
                let opened = openat(&handle, &child.name, DIRECTORY, Mode::empty());
                drop(handle);
                match opened {
                    // It went away, or something else took its place.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
                    Err(why) => {
                        let mut path = node.path.clone();
                        path.extend_from_slice(child.name.to_bytes());
                        self.visitor.unreadable(&path, why);
                        Ok(())
                    }
                    Ok(dir) => self.enter(walker, node, &child, dir),
                }
            }
        }
    }

    fn enter(
        &mut self,
        walker: &Walker<'_>,
        parent: &Node,
        child: &Child,
        dir: OwnedFd,
    ) -> Result<(), Errno> {
        let id = identity(&dir)?;
        let mut path = Vec::with_capacity(parent.path.len() + child.name.count_bytes() + 1);
        path.extend_from_slice(&parent.path);
        path.extend_from_slice(child.name.to_bytes());
        path.push(b'/');
        let node = Node {
            path,
            depth: parent.depth + 1,
            rules: parent.rules.clone().filter(|_| child.keeps_rules),
            id,
        };
        let next = self.batch.fill(dir.as_fd(), None);
        if let Err(why) = next {
            let shown = node.path.strip_suffix(b"/").unwrap_or_default();
            self.visitor.unreadable(shown, why);
        }
        let next = next.unwrap_or_default();
        let has_rules = next.is_some()
            || (self.batch.entries()).any(|(name, _)| ignores::FILES.contains(&name));
        let node = Arc::new(if has_rules {
            Node {
                rules: Rules::enter(
                    node.rules,
                    dir.as_fd(),
                    node.path.len(),
                    walker.limits.ignore_file_bytes,
                ),
                ..node
            }
        } else {
            node
        });
        self.visit(walker, &node, &Arc::new(dir), next);
        Ok(())
    }

    fn read(
        &mut self,
        walker: &Walker<'_>,
        node: &Arc<Node>,
        handle: &Arc<OwnedFd>,
        from: Option<batch::Cookie>,
    ) -> Result<(), Errno> {
        let next = self.batch.fill(handle.as_fd(), from)?;
        self.visit(walker, node, handle, next);
        Ok(())
    }

    /// Directories first, so that others can begin on them, then the rest.
    fn visit(
        &mut self,
        walker: &Walker<'_>,
        node: &Arc<Node>,
        handle: &Arc<OwnedFd>,
        next: Option<batch::Cookie>,
    ) {
        let mut path = std::mem::take(&mut self.path);
        let mut children = Vec::new();
        let mut seen = 0;
        for (name, kind) in self.batch.entries() {
            seen += 1;
            if kind == Kind::Directory {
                let entry = entry(&mut path, node, handle.as_fd(), walker.base_len, name, kind);
                let claim = match self.visitor.descend(&entry) {
                    Claim::UnlessIgnored if is_private(name) => Claim::No,
                    other => other,
                };
                if claim == Claim::No {
                    continue;
                }
                let ignored = Rules::ignore(node.rules.as_ref(), entry.path, true);
                if ignored && claim == Claim::UnlessIgnored {
                    self.visitor.ignored();
                    continue;
                }
                children.push(Child {
                    name: name.to_owned(),
                    keeps_rules: !ignored,
                });
            }
        }
        walker.stack.push(node, handle, children, next);
        walker.tally.entries.fetch_add(seen, Ordering::Relaxed);
        for (name, kind) in self.batch.entries() {
            if walker.stop.cause().is_some() {
                break;
            }
            let entry = entry(&mut path, node, handle.as_fd(), walker.base_len, name, kind);
            match self.visitor.claim(&entry) {
                Claim::No => {}
                Claim::UnlessIgnored if kind == Kind::Directory && is_private(name) => {}
                Claim::UnlessIgnored
                    if Rules::ignore(node.rules.as_ref(), entry.path, kind == Kind::Directory) =>
                {
                    // A directory was counted where it was not entered.
                    if kind != Kind::Directory {
                        self.visitor.ignored();
                    }
                }
                Claim::UnlessIgnored | Claim::Spelled => self.visitor.take(&entry),
            }
        }
        self.path = path;
    }
}

/// Whether a directory is entered only where it is spelled out.
fn is_private(name: &CStr) -> bool {
    matches!(name.to_bytes(), b".git" | b".bma")
}

fn entry<'a>(
    path: &'a mut Vec<u8>,
    node: &Node,
    parent: BorrowedFd<'a>,
    base_len: usize,
    name: &'a CStr,
    kind: Kind,
) -> Entry<'a> {
    path.clear();
    path.extend_from_slice(&node.path);
    path.extend_from_slice(name.to_bytes());
    Entry {
        parent,
        name,
        path,
        below: path.get(base_len..).unwrap_or_default(),
        depth: node.depth,
        kind,
    }
}
