//! The only door to files: an open directory, and names resolved below it by the kernel.

pub(crate) mod spelling;
pub(crate) mod walk;

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

// ---- Stand-ins of the search room; the files room replaces everything below. ----

/// What a resolved path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
}

/// What to branch on where a path cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathErrorKind {
    /// There is nothing of that name.
    NotFound,
    /// A component that must be a directory is something else.
    NotADirectory,
    /// Anything else.
    Other,
}

/// Where a path leads, links followed, inside the workspace.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// Open for reading (a directory: for listing).
    pub(crate) handle: OwnedFd,
    /// What it is.
    pub(crate) kind: Kind,
    /// The path relative to the workspace, without `.`, `..` and a trailing slash; empty for the workspace itself.
    pub(crate) path: Vec<u8>,
}

/// A job was stopped before it had a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped(pub(crate) crate::stop::StopCause);

impl PathError {
    /// Returns what to branch on.
    pub fn kind(&self) -> PathErrorKind {
        if self.0.ends_with("does not exist") {
            PathErrorKind::NotFound
        } else if self.0.ends_with("is not a directory") {
            PathErrorKind::NotADirectory
        } else {
            PathErrorKind::Other
        }
    }
}

impl Workspace {
    /// Opens what a path, as the caller spelled it, leads to.
    pub(crate) fn resolve_dir_or_file(&self, spelled: &str) -> Result<Resolved, PathError> {
        use std::os::unix::ffi::OsStrExt as _;
        let bytes = spelling::parse(spelled).map_err(|e| PathError(e.to_string()))?;
        let joined = self
            .0
            .join(Path::new(std::ffi::OsStr::from_bytes(bytes.as_ref())));
        let real = std::fs::canonicalize(&joined).map_err(|e| {
            PathError(match e.kind() {
                std::io::ErrorKind::NotFound => format!("`{spelled}` does not exist"),
                std::io::ErrorKind::NotADirectory => format!("`{spelled}` is not a directory"),
                _ => format!("`{spelled}` cannot be opened: {e}"),
            })
        })?;
        let below = real
            .strip_prefix(self.0.as_path())
            .map_err(|_outside| PathError(format!("`{spelled}` lies outside the workspace")))?;
        let handle = rustix::fs::open(
            &real,
            rustix::fs::OFlags::RDONLY
                | rustix::fs::OFlags::CLOEXEC
                | rustix::fs::OFlags::NONBLOCK
                | rustix::fs::OFlags::NOCTTY,
            rustix::fs::Mode::empty(),
        )
        .map_err(|e| match e {
            rustix::io::Errno::ACCESS => PathError(format!("`{spelled}`: permission denied")),
            other => PathError(format!("`{spelled}` cannot be opened: {other}")),
        })?;
        let kind = match rustix::fs::fstat(&handle)
            .map(|s| rustix::fs::FileType::from_raw_mode(s.st_mode))
        {
            Ok(rustix::fs::FileType::Directory) => Kind::Directory,
            Ok(rustix::fs::FileType::RegularFile) => Kind::File,
            _ => {
                return Err(PathError(format!(
                    "`{spelled}` is a FIFO, a socket or a device"
                )));
            }
        };
        Ok(Resolved {
            handle,
            kind,
            path: below.as_os_str().as_bytes().to_vec(),
        })
    }

    /// Runs a job that may block on files.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        stop: &crate::stop::Stop,
        job: impl FnOnce(&crate::stop::Stop) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        if let Some(cause) = stop.cause() {
            return Err(Stopped(cause));
        }
        let signal = stop.clone();
        tokio::task::spawn_blocking(move || job(&signal))
            .await
            .map_err(|_panic| Stopped(crate::stop::StopCause::Shutdown))
    }
}
