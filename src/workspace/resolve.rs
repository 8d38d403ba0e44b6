//! From a caller's text to an open handle below the workspace.
//!
//! The kernel resolves the whole path at once. What it refuses is resolved again by [`steps`](super::steps), which
//! either follows what the kernel may not (an absolute link that points inside) or tells which component is at fault.

use std::borrow::Cow;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;

use super::error::{Fault, PathError, PathErrorKind, Spelled};
use super::roots::tidy;
use super::spelling::{parse, show};
use super::steps::{Found, Place, walk};
use super::{Confinement, Workspace};

/// How often a path is resolved again where names are being exchanged meanwhile.
const ATTEMPTS: usize = 40;

/// What stands at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResolvedKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
}

/// A directory of a workspace, open to start something in or to look for something below.
#[derive(Debug)]
pub enum Directory {
    /// The workspace's own, which is open already.
    Root(Workspace),
    /// One below it.
    Below(OwnedFd),
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(workspace) => workspace.handle(),
            Self::Below(handle) => handle.as_fd(),
        }
    }
}

/// A directory or a regular file, opened for reading.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// Opened for reading.
    pub(crate) handle: OwnedFd,
    /// What it is.
    pub(crate) kind: ResolvedKind,
    /// Its path relative to the workspace, without `.` and `..`; empty for the workspace itself.
    pub(crate) path: Vec<u8>,
}

/// A regular file, opened for reading.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    /// Opened for reading.
    pub(crate) file: File,
    /// Its size when it was opened.
    pub(crate) len: u64,
    /// Its path relative to the workspace, as text for results.
    pub(crate) shown: String,
    /// The path as the caller wrote it, for sentences.
    pub(crate) spelled: String,
}

/// A caller's path, taken apart.
#[derive(Debug)]
pub(super) struct Parsed<'a> {
    /// The bytes that the text stands for.
    pub(super) bytes: Cow<'a, [u8]>,
    /// Where the part below the root begins.
    start: usize,
}

impl Parsed<'_> {
    /// Returns the part below the root; empty for the root itself.
    pub(super) fn below(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Returns the path relative to the workspace, links as the caller wrote them.
    pub(super) fn relative(&self) -> Vec<u8> {
        let below = tidy(self.below());
        below.strip_prefix(b"/").unwrap_or(&below).to_vec()
    }

    /// Returns the relative path as text for results.
    pub(super) fn shown(&self) -> String {
        let relative = self.relative();
        if relative.is_empty() {
            ".".to_owned()
        } else {
            show(&relative).into_owned()
        }
    }
}

impl Workspace {
    /// Returns the workspace's own directory.
    pub fn directory(&self) -> Directory {
        Directory::Root(self.clone())
    }

    /// Opens a directory as a command's working directory.
    ///
    /// # Errors
    /// [`PathError`] where it is not a directory inside the workspace.
    pub fn open_dir(&self, path: &str) -> Result<Directory, PathError> {
        let parsed = self.parse(path)?;
        if parsed.relative().is_empty() {
            return Ok(self.directory());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let (handle, _) = self.open_at_end(&parsed, flags)?;
        Ok(Directory::Below(handle))
    }

    /// Opens a directory or a regular file, as the root of a search.
    ///
    /// # Errors
    /// [`PathError`] where it is neither, or not inside the workspace.
    pub(crate) fn resolve_dir_or_file(&self, spelled: &str) -> Result<Resolved, PathError> {
        let parsed = self.parse(spelled)?;
        let (handle, stat) = self.open_at_end(&parsed, OFlags::RDONLY)?;
        let file_type = FileType::from_raw_mode(stat.st_mode);
        let kind = if file_type.is_dir() {
            if stat.st_nlink == 0 {
                return Err(self.spelled(&parsed).deleted());
            }
            ResolvedKind::Directory
        } else if file_type == FileType::RegularFile {
            ResolvedKind::File
        } else {
            return Err(self.spelled(&parsed).special(file_type));
        };
        let path = self.path_of(&parsed, handle.as_fd());
        Ok(Resolved { handle, kind, path })
    }

    /// Returns the path under which results are shown: links as the caller wrote them, but no `..`, which would make
    /// the same file appear under many names.
    fn path_of(&self, parsed: &Parsed<'_>, handle: BorrowedFd<'_>) -> Vec<u8> {
        let relative = parsed.relative();
        if !relative
            .split(|byte| *byte == b'/')
            .any(|part| part == b"..")
        {
            return relative;
        }
        // For the eye only: nothing is opened by it.
        let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
        let real = rustix::fs::readlink(link, Vec::new()).unwrap_or_default();
        let below = self.0.roots.strip(real.as_bytes());
        below.map_or(relative, |below| {
            below.strip_prefix(b"/").unwrap_or(below).to_vec()
        })
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// [`PathError`] where it is none, or not inside the workspace.
    pub(crate) fn open_file(&self, spelled: &str) -> Result<OpenedFile, PathError> {
        let parsed = self.parse(spelled)?;
        let (handle, stat) = self.open_at_end(&parsed, OFlags::RDONLY)?;
        let file_type = FileType::from_raw_mode(stat.st_mode);
        if file_type.is_dir() {
            return Err(self.spelled(&parsed).is_a_directory());
        }
        if file_type != FileType::RegularFile {
            return Err(self.spelled(&parsed).special(file_type));
        }
        Ok(opened(&parsed, handle, &stat))
    }

    /// Opens a regular file for reading where that cannot wait: its path is known to the kernel, and its file system is
    /// on this machine. Nothing where it could, or where [`Self::open_file`] would have something to say.
    pub(crate) fn open_cached_file(&self, spelled: &str) -> Option<OpenedFile> {
        if !self.is_local() || self.confinement() != Confinement::Openat2 {
            return None;
        }
        let parsed = self.parse(spelled).ok()?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::CACHED | ResolveFlags::NO_XDEV;
        let (handle, stat) = by_kernel(self.handle(), parsed.below(), flags, resolve, 1)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_file.then(|| opened(&parsed, handle, &stat))
    }

    /// Opens a directory by a walk; returns its path with links resolved, and as spelled.
    pub(super) fn enter(&self, path: &str) -> Result<(OwnedFd, Vec<u8>, Vec<u8>), PathError> {
        let parsed = self.parse(path)?;
        let spelled = self.spelled(&parsed);
        let place = self.walk(&parsed)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match &place.found {
            Found::Directory => {
                let handle = openat(place.directory(self.handle()), ".", flags, Mode::empty())
                    .map_err(|errno| spelled.system("open", errno, &place.fault(&[])))?;
                Ok((handle, place.directory_path(), parsed.relative()))
            }
            Found::Entry { name, .. } => Err(spelled.not_a_directory(&place.fault(name))),
            Found::Missing { names, .. } => Err(spelled.not_found(&missing(&place, names))),
        }
    }

    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.0.handle.as_fd()
    }

    pub(super) fn spelled<'a>(&'a self, parsed: &'a Parsed<'_>) -> Spelled<'a> {
        Spelled {
            path: &parsed.bytes,
            root: self.0.roots.canonical(),
        }
    }

    /// Takes a caller's text apart.
    pub(super) fn parse<'a>(&self, text: &'a str) -> Result<Parsed<'a>, PathError> {
        let bytes = parse(text)
            .map_err(|error| PathError::new(PathErrorKind::BadName, error.to_string()))?;
        if bytes.is_empty() {
            return Err(PathError::new(
                PathErrorKind::BadName,
                "the path is empty; name a file, or write `.` for the workspace itself",
            ));
        }
        if bytes.contains(&0) {
            return Err(PathError::new(
                PathErrorKind::BadName,
                format!(
                    "`{}` holds a NUL byte, which no file name can",
                    show(&bytes)
                ),
            ));
        }
        let start = if bytes.starts_with(b"/") {
            let spelled = Spelled {
                path: &bytes,
                root: self.0.roots.canonical(),
            };
            let rest = self.0.roots.strip(&bytes);
            let rest = rest.ok_or_else(|| spelled.outside(&Fault::default()))?;
            bytes.len() - rest.len()
        } else {
            0
        };
        Ok(Parsed { bytes, start })
    }

    pub(super) fn walk(&self, parsed: &Parsed<'_>) -> Result<Place, PathError> {
        let spelled = self.spelled(parsed);
        walk(self.handle(), &self.0.roots, parsed.below(), &spelled)
    }

    /// Opens what is at the end of a path without ever waiting for it: a FIFO without a writer would.
    fn open_at_end(
        &self,
        parsed: &Parsed<'_>,
        flags: OFlags,
    ) -> Result<(OwnedFd, Stat), PathError> {
        let flags = if flags.contains(OFlags::PATH) {
            // Nothing waits for such a handle, and openat2 refuses what has no meaning for it.
            flags | OFlags::CLOEXEC
        } else {
            flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC
        };
        if self.confinement() == Confinement::Openat2
            && let Some(opened) = by_kernel(
                self.handle(),
                parsed.below(),
                flags,
                ResolveFlags::empty(),
                ATTEMPTS,
            )
        {
            return Ok(opened);
        }
        self.open_by_steps(parsed, flags)
    }

    fn open_by_steps(
        &self,
        parsed: &Parsed<'_>,
        flags: OFlags,
    ) -> Result<(OwnedFd, Stat), PathError> {
        let spelled = self.spelled(parsed);
        let mut last = Errno::AGAIN;
        let mut fault = Fault::default();
        for _ in 0..ATTEMPTS {
            let place = self.walk(parsed)?;
            let directory = place.directory(self.handle());
            let name = match &place.found {
                Found::Directory => b".".as_slice(),
                Found::Entry { name, stat, .. } => {
                    let file_type = FileType::from_raw_mode(stat.st_mode);
                    if file_type != FileType::RegularFile && !flags.contains(OFlags::DIRECTORY) {
                        return Err(spelled.special(file_type));
                    }
                    name
                }
                Found::Missing { names, .. } => {
                    return Err(spelled.not_found(&missing(&place, names)));
                }
            };
            let opened = openat(directory, name, flags | OFlags::NOFOLLOW, Mode::empty())
                .and_then(|handle| fstat(&handle).map(|stat| (handle, stat)));
            match opened {
                Ok(opened) => return Ok(opened),
                // Something else has taken the name since the walk passed it.
                Err(errno @ (Errno::LOOP | Errno::NOENT | Errno::NXIO)) => last = errno,
                Err(errno) => {
                    let name = if name == b"." { &[][..] } else { name };
                    return Err(spelled.system("open", errno, &place.fault(name)));
                }
            }
            fault = place.fault(name);
        }
        Err(spelled.system("open", last, &fault))
    }
}

/// Returns the fault of a path whose components `names` are missing.
pub(super) fn missing(place: &Place, names: &[Vec<u8>]) -> Fault {
    place.fault(names.first().map_or(&[], Vec::as_slice))
}

fn opened(parsed: &Parsed<'_>, handle: OwnedFd, stat: &Stat) -> OpenedFile {
    OpenedFile {
        file: File::from(handle),
        len: u64::try_from(stat.st_size).unwrap_or(0),
        shown: parsed.shown(),
        spelled: show(&parsed.bytes).into_owned(),
    }
}

/// Lets the kernel resolve the whole path; nothing where it refuses, be it for good or not.
fn by_kernel(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    further: ResolveFlags,
    attempts: usize,
) -> Option<(OwnedFd, Stat)> {
    // A leading slash would be an absolute path to the kernel; here it is what is left after the root.
    let start = path.iter().position(|byte| *byte != b'/');
    let path = start.and_then(|start| path.get(start..)).unwrap_or(b".");
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | further;
    for _ in 0..attempts {
        match openat2(root, path, flags, Mode::empty(), resolve) {
            Ok(handle) => return fstat(&handle).ok().map(|stat| (handle, stat)),
            // A rename nearby: the kernel cannot tell whether `..` stayed beneath.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    None
}
