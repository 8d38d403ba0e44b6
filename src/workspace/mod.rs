//! The only door to files: an open directory, and names resolved below it by the kernel.
//!
//! Nothing here is looked at by name and then used by name: what is checked is the handle that is used.

mod blocking;
mod change;
mod error;
mod in_place;
mod leftovers;
mod locks;
mod metadata;
mod replace;
mod resolve;
mod roots;
pub(crate) mod spelling;
mod steps;
mod target;
mod temp;
#[cfg(test)]
mod tests;
pub(crate) mod walk;

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use tokio::sync::Semaphore;

pub(crate) use blocking::Stopped;
pub(crate) use change::{Attempt, ChangeError};
pub use error::{PathError, PathErrorKind};
pub(crate) use replace::ReplaceError;
pub use resolve::Directory;
pub(crate) use resolve::{OpenedFile, Resolved, ResolvedKind};
pub(crate) use target::{Parents, Target};

use crate::limits::Limits;
use locks::FileLocks;
use roots::Roots;

/// A directory that a session works in. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Workspace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: OwnedFd,
    /// Whether its file system never asks another machine or program.
    is_local: bool,
    root: PathBuf,
    roots: Roots,
    shared: Arc<Shared>,
}

/// What all workspaces of one daemon share.
#[derive(Debug)]
struct Shared {
    confinement: Confinement,
    limits: Arc<Limits>,
    jobs: Arc<Semaphore>,
    locks: Arc<FileLocks>,
}

/// Why a workspace cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the workspace `{path}`")]
pub struct OpenError {
    path: String,
    #[source]
    source: std::io::Error,
}

/// How paths are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// By the kernel's `openat2`.
    Openat2,
    /// By a walk of components.
    Walk,
}

impl Workspace {
    /// Opens the workspace at `path`; the bound on file jobs is shared with all workspaces below it.
    ///
    /// # Errors
    /// [`OpenError`] where it is not a directory that can be opened.
    pub fn open(path: &Path, limits: &Arc<Limits>) -> Result<Self, OpenError> {
        Self::open_confined(path, limits, None)
    }

    /// Opens a workspace whose paths are confined as said, or as the kernel can.
    pub(crate) fn open_confined(
        path: &Path,
        limits: &Arc<Limits>,
        confinement: Option<Confinement>,
    ) -> Result<Self, OpenError> {
        let failed = |source| OpenError {
            path: path.display().to_string(),
            source,
        };
        let root = std::fs::canonicalize(path).map_err(failed)?;
        let given = std::path::absolute(path).map_err(failed)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = open(&root, flags, Mode::empty())
            .map_err(|errno| failed(std::io::Error::from(errno)))?;
        let roots = Roots::new([root.as_path(), given.as_path()]);
        let shared = Shared {
            confinement: confinement.unwrap_or_else(|| probe(&handle)),
            limits: Arc::clone(limits),
            jobs: Arc::new(Semaphore::new(limits.max_blocking_jobs)),
            locks: Arc::new(FileLocks::default()),
        };
        Ok(Self(Arc::new(Inner {
            is_local: is_local(&handle),
            handle,
            root,
            roots,
            shared: Arc::new(shared),
        })))
    }

    /// Opens a directory below this one as a workspace of its own, sharing the bound on file jobs.
    ///
    /// # Errors
    /// [`PathError`] where it is not a directory inside this workspace.
    pub fn below(&self, path: &str) -> Result<Self, PathError> {
        let (handle, real, spelled) = self.enter(path)?;
        let roots = self.0.roots.below(&[&real, &spelled]);
        let root = PathBuf::from(std::ffi::OsStr::from_bytes(roots.canonical()));
        Ok(Self(Arc::new(Inner {
            is_local: is_local(&handle),
            handle,
            root,
            roots,
            shared: Arc::clone(&self.0.shared),
        })))
    }

    /// Returns the absolute path, links resolved, as it was when it was opened.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// Returns the absolute path as text, in the escaped form where it must be.
    pub fn shown_root(&self) -> String {
        spelling::show(self.root().as_os_str().as_bytes()).into_owned()
    }

    fn is_local(&self) -> bool {
        self.0.is_local
    }

    /// Whether the directory is still there: opened, it outlives its name. Asks the disk, so that it may block.
    ///
    /// # Errors
    /// The disk fails.
    pub fn exists(&self) -> std::io::Result<bool> {
        let stat = rustix::fs::fstat(&self.0.handle)?;
        Ok(stat.st_nlink > 0)
    }

    /// Returns how paths are confined here.
    pub fn confinement(&self) -> Confinement {
        self.0.shared.confinement
    }
}

/// Tells whether a directory's file system is one of those that keep everything on this machine; numbers from statfs(2).
fn is_local(handle: &OwnedFd) -> bool {
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683e;
    const TMPFS: i64 = 0x0102_1994;
    rustix::fs::fstatfs(handle).is_ok_and(|stat| [EXT4, XFS, BTRFS, TMPFS].contains(&stat.f_type))
}

/// Asks the kernel whether it has `openat2`: some container runtimes forbid it.
fn probe(root: &OwnedFd) -> Confinement {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(root, ".", flags, Mode::empty(), ResolveFlags::BENEATH) {
        Ok(_) => Confinement::Openat2,
        Err(_) => Confinement::Walk,
    }
}
