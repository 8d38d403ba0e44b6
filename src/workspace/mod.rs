//! The only door to files: an open directory, and names resolved below it by the kernel.

pub(crate) mod spelling;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// A directory that a session works in. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Workspace(Arc<std::path::PathBuf>);

/// Why a workspace cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the workspace `{path}`")]
pub struct OpenError {
    path: String,
    #[source]
    source: std::io::Error,
}

/// Why a path cannot be used; the text is a sentence for the model that names the path as the caller wrote it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PathError(String);

/// How paths are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// By the kernel's `openat2`.
    Openat2,
    /// By a walk of components.
    Walk,
}

impl Workspace {
    /// Opens the workspace at `path`, `blocking_jobs` file jobs at one time.
    pub fn open(path: &Path, _limits: &Arc<crate::limits::Limits>) -> Result<Self, OpenError> {
        std::fs::canonicalize(path)
            .map(|p| Self(Arc::new(p)))
            .map_err(|source| OpenError {
                path: path.display().to_string(),
                source,
            })
    }

    /// Opens a directory below this one as a workspace of its own, sharing the bound on file jobs.
    pub fn below(&self, path: &str) -> Result<Self, PathError> {
        Ok(Self(Arc::new(self.0.join(path))))
    }

    /// Returns the absolute path, links resolved, as it was when it was opened.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Returns the absolute path as text, in the escaped form where it must be.
    pub fn shown_root(&self) -> String {
        use std::os::unix::ffi::OsStrExt as _;
        spelling::show(self.root().as_os_str().as_bytes()).into_owned()
    }

    /// Returns how paths are confined here.
    pub fn confinement(&self) -> Confinement {
        Confinement::Openat2
    }

    /// Opens a directory as a command's working directory.
    pub fn open_dir(&self, path: &str) -> Result<OwnedFd, PathError> {
        std::fs::File::open(self.0.join(path))
            .map(Into::into)
            .map_err(|e| PathError(e.to_string()))
    }
}
