//! One thread of a walk: takes a directory, reads it, asks the visitor, pushes what lies below.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{Mode, openat};
use rustix::io::Errno;

use super::batch::{Batch, Cookie, Kind};
use super::ignores::{FILES, REPOSITORY, Rules};
use super::stack::{Child, DIRECTORY, Node, Stack, Task, identity};
use super::{Claim, Entry, Tally, Visitor};
use crate::limits::Limits;
use crate::stop::Stop;

/// What all threads of one walk share.
pub(super) struct Walker<'a> {
    pub(super) base_len: usize,
    pub(super) stack: Stack,
    pub(super) limits: &'a Limits,
    pub(super) stop: &'a Stop,
    pub(super) tally: &'a Tally,
}

/// One thread of a walk, with its buffers.
pub(super) struct Worker<V> {
    pub(super) visitor: V,
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
    pub(super) fn new(visitor: V) -> Self {
        Self {
            visitor,
            batch: Batch::new(),
            path: Vec::new(),
        }
    }

    /// Works until nothing is left, or until `entries` were seen in all.
    pub(super) fn run(&mut self, walker: &Walker<'_>, entries: Option<u64>) {
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
            || (self.batch.entries()).any(|(name, _)| name == REPOSITORY || FILES.contains(&name));
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
        from: Option<Cookie>,
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
        next: Option<Cookie>,
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
                    claim @ (Claim::No | Claim::UnlessIgnored | Claim::Spelled) => claim,
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
