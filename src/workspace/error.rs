//! Why a path cannot be used, as a sentence that lets a model repair its call.
//!
//! Each sentence names the path as the caller wrote it, the component at fault and what to do. Nothing here
//! touches a file.

use rustix::fs::FileType;
use rustix::io::Errno;

use super::spelling::show;

/// Why a path cannot be used; the text is a sentence for the model that names the path as the caller wrote it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct PathError {
    kind: PathErrorKind,
    sentence: String,
}

/// What to branch on where a path cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathErrorKind {
    /// There is nothing of that name.
    NotFound,
    /// A component that must be a directory is something else.
    NotADirectory,
    /// A directory stands where a file is asked for.
    IsADirectory,
    /// The path leads outside the workspace.
    Outside,
    /// Its symbolic links form a loop, or are too many.
    Loop,
    /// The user may not do that.
    Denied,
    /// A FIFO, a socket or a device stands there.
    Special,
    /// The text is not the name of a file.
    BadName,
    /// Anything else that the system says.
    Other,
}

/// A path in the words of its caller, to be named in sentences.
#[derive(Debug, Clone)]
pub(super) struct Spelled<'a> {
    /// The bytes that the caller's text stands for.
    pub(super) path: &'a [u8],
    /// The workspace's own path, for the advice where a path leads outside.
    pub(super) root: &'a [u8],
}

/// Where a resolution failed: the component, relative to the workspace with links resolved, and the link that led there.
#[derive(Debug, Clone, Default)]
pub(super) struct Fault {
    pub(super) at: Vec<u8>,
    pub(super) via: Option<Vec<u8>>,
}

impl PathError {
    /// Makes an error of any kind.
    pub(crate) fn new(kind: PathErrorKind, sentence: impl Into<String>) -> Self {
        Self {
            kind,
            sentence: sentence.into(),
        }
    }

    /// Returns what to branch on.
    pub fn kind(&self) -> PathErrorKind {
        self.kind
    }
}

impl Spelled<'_> {
    /// Returns the path as the caller wrote it.
    pub(super) fn shown(&self) -> String {
        format!("`{}`", show(self.path))
    }

    pub(super) fn outside(&self, fault: &Fault) -> PathError {
        let through = match &fault.via {
            Some(link) => format!(" through the link `{}`", show(link)),
            None => String::new(),
        };
        PathError::new(
            PathErrorKind::Outside,
            format!(
                "{} leads outside the workspace{through}; use a path inside the workspace `{}`",
                self.shown(),
                show(self.root)
            ),
        )
    }

    pub(super) fn looped(&self, fault: &Fault) -> PathError {
        PathError::new(
            PathErrorKind::Loop,
            format!(
                "{} cannot be resolved: its symbolic links form a loop, or are more than 40, at `{}`; \
                 name the real file instead",
                self.shown(),
                show(&fault.at)
            ),
        )
    }

    pub(super) fn not_a_directory(&self, fault: &Fault) -> PathError {
        PathError::new(
            PathErrorKind::NotADirectory,
            if self.names(fault) {
                format!(
                    "{} is not a directory; name a directory, or leave out the `/` or `.` at its end",
                    self.shown()
                )
            } else {
                format!(
                    "{} cannot be reached: `{}`{} is not a directory",
                    self.shown(),
                    show(&fault.at),
                    via(fault)
                )
            },
        )
    }

    pub(super) fn is_a_directory(&self) -> PathError {
        PathError::new(
            PathErrorKind::IsADirectory,
            format!(
                "{} is a directory, not a file; name a file in it (list_files shows what is there)",
                self.shown()
            ),
        )
    }

    pub(super) fn special(&self, file_type: FileType) -> PathError {
        PathError::new(
            PathErrorKind::Special,
            format!(
                "{} is {}; only regular files can be read, written and edited",
                self.shown(),
                kind_name(file_type)
            ),
        )
    }

    pub(super) fn not_found(&self, fault: &Fault) -> PathError {
        let sentence = if self.names(fault) {
            format!("{} does not exist", self.shown())
        } else {
            format!(
                "{} does not exist: there is no `{}`{}",
                self.shown(),
                show(&fault.at),
                via(fault)
            )
        };
        PathError::new(
            PathErrorKind::NotFound,
            format!("{sentence}; check the spelling with list_files or glob"),
        )
    }

    /// Says that a directory was deleted while it was in use: opened, it outlives its name and looks empty.
    pub(super) fn deleted(&self) -> PathError {
        let shown = self.shown();
        let sentence = format!(
            "{shown} has been deleted; work in a directory that exists, or make it again and open a new session"
        );
        PathError::new(PathErrorKind::Other, sentence)
    }

    /// Says what the system answered, `doing` being the operation (`open`, `replace`).
    pub(super) fn system(&self, doing: &str, errno: Errno, fault: &Fault) -> PathError {
        let at = if self.names(fault) {
            String::new()
        } else {
            format!(" at `{}`", show(&fault.at))
        };
        let (kind, reason) = match errno {
            Errno::NOENT => return self.not_found(fault),
            Errno::NOTDIR => return self.not_a_directory(fault),
            Errno::LOOP => return self.looped(fault),
            Errno::XDEV => return self.outside(fault),
            Errno::ISDIR => return self.is_a_directory(),
            Errno::ACCESS => (
                PathErrorKind::Denied,
                "permission denied for the user that the executor runs as".to_owned(),
            ),
            Errno::PERM => (
                PathErrorKind::Denied,
                "the system does not permit it (the file may be immutable or append-only)"
                    .to_owned(),
            ),
            Errno::ROFS => (
                PathErrorKind::Denied,
                "the file system is read-only".to_owned(),
            ),
            Errno::NAMETOOLONG => (
                PathErrorKind::BadName,
                "a name in it is too long (255 bytes at most)".to_owned(),
            ),
            Errno::INVAL => (
                PathErrorKind::BadName,
                "the file system does not take that name".to_owned(),
            ),
            Errno::NOSPC => (
                PathErrorKind::Other,
                "no space is left on the device".to_owned(),
            ),
            Errno::FBIG => (
                PathErrorKind::Other,
                "it would be larger than the file system or the executor's limit on file sizes (ulimit -f) allows"
                    .to_owned(),
            ),
            Errno::DQUOT => (PathErrorKind::Other, "the disk quota is used up".to_owned()),
            Errno::TXTBSY => (
                PathErrorKind::Other,
                "it is a program that is running".to_owned(),
            ),
            other => (
                PathErrorKind::Other,
                std::io::Error::from(other).to_string(),
            ),
        };
        PathError::new(
            kind,
            format!("cannot {doing} {}{at}: {reason}", self.shown()),
        )
    }

    /// Tells whether the component at fault is what the caller named, so that it need not be named twice.
    fn names(&self, fault: &Fault) -> bool {
        if fault.at.is_empty() {
            return true;
        }
        let named = super::roots::tidy(self.path);
        fault.via.is_none()
            && (named == fault.at
                || named
                    .strip_suffix(fault.at.as_slice())
                    .is_some_and(|root| self.path.starts_with(b"/") && root.ends_with(b"/")))
    }
}

fn via(fault: &Fault) -> String {
    match &fault.via {
        Some(link) => format!(" (to which the link `{}` leads)", show(link)),
        None => String::new(),
    }
}

/// Returns what a directory entry is, with its article.
pub(super) fn kind_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Symlink => "a symbolic link",
        FileType::Directory => "a directory",
        FileType::RegularFile => "a regular file",
        FileType::Unknown => "of an unknown kind",
    }
}
