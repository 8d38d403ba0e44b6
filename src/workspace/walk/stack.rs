//! The directories that a walk still has to visit, with a bounded number of open descriptors.
//!
//! A directory is opened from its parent's handle. Where too many wait, the oldest handles are closed; such a directory
//! is opened again from the base, without following links, and must then be the very same one.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;

use super::batch::Cookie;
use super::ignores::Rules;

/// A directory that was opened once.
#[derive(Debug)]
pub(super) struct Node {
    /// Path relative to the workspace, with a slash at its end unless empty.
    pub(super) path: Vec<u8>,
    /// Directories between it and the base.
    pub(super) depth: usize,
    pub(super) rules: Option<Arc<Rules>>,
    pub(super) id: (u64, u64),
}

/// A directory below a [`Node`] that is still to be visited.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) name: CString,
    /// Whether the rules above hold inside; they do not where the caller spelled out an ignored directory.
    pub(super) keeps_rules: bool,
}

/// What is to be done next.
#[derive(Debug)]
pub(super) enum Task {
    /// Visit a directory below.
    Child(Child),
    /// Read on in the directory itself.
    Rest(Option<Cookie>),
}

#[derive(Debug)]
struct Frame {
    node: Arc<Node>,
    handle: Option<Arc<OwnedFd>>,
    children: Vec<Child>,
    rest: Option<Cookie>,
}

#[derive(Debug)]
struct State {
    frames: Vec<Frame>,
    /// Handles in `frames` that are open.
    open: usize,
    /// Workers that hold a task and may push more.
    busy: usize,
}

/// The shared stack. Last in, first out, so that what waits is bounded by depth.
#[derive(Debug)]
pub(super) struct Stack {
    state: Mutex<State>,
    changed: Condvar,
    max_open: usize,
    base: OwnedFd,
    base_len: usize,
}

impl Stack {
    /// Makes a stack that begins with reading `base`, described by `node`.
    pub(super) fn new(base: OwnedFd, node: Arc<Node>, max_open: usize) -> Self {
        let base_len = node.path.len();
        let first = Frame {
            node,
            handle: None,
            children: Vec::new(),
            rest: Some(Cookie::START),
        };
        Self {
            state: Mutex::new(State {
                frames: vec![first],
                open: 0,
                busy: 0,
            }),
            changed: Condvar::new(),
            max_open,
            base,
            base_len,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next task; waits while there is none but others may push one. `None` when all is done.
    /// Each task taken must be given back by [`Self::finish`].
    pub(super) fn take(&self) -> Option<(Arc<Node>, Option<Arc<OwnedFd>>, Task)> {
        let mut state = self.lock();
        loop {
            if let Some(frame) = state.frames.last_mut() {
                let node = Arc::clone(&frame.node);
                let handle = frame.handle.clone();
                let task = match frame.children.pop() {
                    Some(child) => Task::Child(child),
                    None => Task::Rest(frame.rest.take()),
                };
                if frame.children.is_empty() && frame.rest.is_none() {
                    let closed = state.frames.pop().is_some_and(|f| f.handle.is_some());
                    state.open = state.open.saturating_sub(usize::from(closed));
                }
                state.busy += 1;
                return Some((node, handle, task));
            }
            if state.busy == 0 {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Pushes what remains of a directory.
    pub(super) fn push(
        &self,
        node: &Arc<Node>,
        handle: &Arc<OwnedFd>,
        children: Vec<Child>,
        rest: Option<Cookie>,
    ) {
        if children.is_empty() && rest.is_none() {
            return;
        }
        let mut state = self.lock();
        if state.open >= self.max_open {
            // The oldest are needed last.
            if let Some(oldest) = state.frames.iter_mut().find(|f| f.handle.is_some()) {
                oldest.handle = None;
                state.open -= 1;
            }
        }
        state.open += 1;
        state.frames.push(Frame {
            node: Arc::clone(node),
            handle: Some(Arc::clone(handle)),
            children,
            rest,
        });
        drop(state);
        self.changed.notify_all();
    }

    /// Gives back a task; the last one to do so lets all workers go.
    pub(super) fn finish(&self) {
        let mut state = self.lock();
        state.busy = state.busy.saturating_sub(1);
        let done = state.busy == 0 && state.frames.is_empty();
        drop(state);
        if done {
            self.changed.notify_all();
        }
    }

    /// Drops everything that waits.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        state.frames.clear();
        state.open = 0;
        drop(state);
        self.changed.notify_all();
    }

    /// Whether anything waits that another worker could take.
    pub(super) fn has_more(&self) -> bool {
        !self.lock().frames.is_empty()
    }

    /// Opens a node whose handle was closed, and keeps the handle for its siblings.
    ///
    /// # Errors
    /// [`Errno::STALE`] where another directory stands there now.
    pub(super) fn reopen(&self, node: &Arc<Node>) -> Result<Arc<OwnedFd>, Errno> {
        let below = node.path.get(self.base_len..).unwrap_or_default();
        let handle = Arc::new(open_below(&self.base, below)?);
        if identity(&handle)? != node.id {
            return Err(Errno::STALE);
        }
        let mut state = self.lock();
        if state.open < self.max_open
            && let Some(frame) = state.frames.last_mut()
            && Arc::ptr_eq(&frame.node, node)
            && frame.handle.is_none()
        {
            frame.handle = Some(Arc::clone(&handle));
            state.open += 1;
        }
        Ok(handle)
    }
}

/// Returns what tells one directory from another.
pub(super) fn identity(dir: &impl AsFd) -> Result<(u64, u64), Errno> {
    let stat = fstat(dir)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// How every directory of a walk is opened: never through a link, never blocking.
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// Opens a directory below `base` in pieces that the kernel takes: a path may be longer than its limit.
fn open_below(base: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    const PIECE: usize = 3_000;
    let mut dir = openat(base, c".", DIRECTORY, Mode::empty())?;
    let mut rest = path.strip_suffix(b"/").unwrap_or(path);
    while !rest.is_empty() {
        let end = if rest.len() <= PIECE {
            rest.len()
        } else {
            let head = rest.get(..PIECE).unwrap_or(rest);
            memchr::memrchr(b'/', head).unwrap_or(rest.len())
        };
        let (piece, tail) = rest.split_at_checked(end).unwrap_or((rest, b""));
        dir = open_piece(&dir, piece)?;
        rest = tail.strip_prefix(b"/").unwrap_or(tail);
    }
    Ok(dir)
}

fn open_piece(dir: &OwnedFd, piece: &[u8]) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(dir, piece, DIRECTORY, Mode::empty(), resolve) {
        Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {}
        other => return other,
    }
    // One component at a time the plain call has no way out either.
    let mut at: Option<OwnedFd> = None;
    for component in piece.split(|&byte| byte == b'/') {
        let from = at.as_ref().unwrap_or(dir);
        at = Some(openat(from, component, DIRECTORY, Mode::empty())?);
    }
    at.ok_or(Errno::NOENT)
}
