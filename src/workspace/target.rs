//! Where a changed file goes: the open directory that holds it and its name there, links followed.
//!
//! A target is what a resolution found at one moment. Whoever changes it holds its locks and resolves again after taking them.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, unlinkat};
use rustix::io::Errno;

use super::Workspace;
use super::error::{Fault, PathError, PathErrorKind, Spelled};
use super::locks::Key;
use super::resolve::{Parsed, missing};
use super::spelling::show;
use super::steps::{Found, Place};

/// How often directories are made anew where something else takes their names.
const ATTEMPTS: usize = 10;

/// Whether missing files and parent directories are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parents {
    /// They are.
    Make,
    /// The file must exist.
    Refuse,
}

/// A regular file, or the place of one that does not exist yet.
#[derive(Debug)]
pub(crate) struct Target {
    pub(super) directory: OwnedFd,
    pub(super) name: Vec<u8>,
    /// The file as the resolution found it.
    pub(super) existing: Option<Stat>,
    /// Keeps the file's number from being given to another file while this one is worked on.
    _pin: Option<OwnedFd>,
    /// The path relative to the workspace, links resolved.
    real: Vec<u8>,
    bytes: Vec<u8>,
    root: Vec<u8>,
    shown: String,
    /// The largest copy that is kept in memory while a file is written in place.
    pub(super) memory_bytes: u64,
}

impl Target {
    /// Returns the path relative to the workspace, as text for results.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Returns the path as the caller wrote it, for sentences.
    pub(crate) fn spelled(&self) -> String {
        show(&self.bytes).into_owned()
    }

    /// Makes an error that says what the system answered.
    pub(super) fn system(&self, doing: &str, errno: Errno) -> PathError {
        let fault = Fault {
            at: self.real.clone(),
            via: None,
        };
        let spelled = Spelled {
            path: &self.bytes,
            root: &self.root,
        };
        spelled.system(doing, errno, &fault)
    }

    /// Opens the file, never waiting; nothing where the name has come to mean something else.
    pub(super) fn open(&self, flags: OFlags) -> Result<Option<(File, Stat)>, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let handle = match openat(&self.directory, self.name.as_slice(), flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ISDIR) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let stat = fstat(&handle)?;
        let same = self.existing.is_some_and(|old| is_same(&old, &stat));
        Ok(same.then(|| (File::from(handle), stat)))
    }

    /// Returns what identifies the file, in the order in which it must be locked.
    pub(super) fn keys(&self) -> Result<Vec<Key>, PathError> {
        let directory = fstat(&self.directory)
            .map_err(|errno| self.system("look at the directory of", errno))?;
        let name = Key::Name {
            device: directory.st_dev,
            directory: directory.st_ino,
            name: self.name.clone(),
        };
        let file = self.existing.map(|stat| Key::File {
            device: stat.st_dev,
            inode: stat.st_ino,
        });
        Ok(std::iter::once(name).chain(file).collect())
    }
}

/// Tells whether two looks saw the same file.
pub(super) fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

impl Workspace {
    /// Resolves a path to the regular file that a change goes to; the directories made for it go to `made`.
    pub(super) fn target(
        &self,
        text: &str,
        parents: Parents,
        made: &mut MadeDirs,
    ) -> Result<Target, PathError> {
        let parsed = self.parse(text)?;
        let spelled = self.spelled(&parsed);
        let mut last = Fault::default();
        for _ in 0..ATTEMPTS {
            let place = self.walk(&parsed)?;
            let (directory, name, existing) = match &place.found {
                Found::Directory => return Err(spelled.is_a_directory()),
                Found::Entry { name, stat, .. } => {
                    let file_type = FileType::from_raw_mode(stat.st_mode);
                    if file_type != FileType::RegularFile {
                        return Err(spelled.special(file_type));
                    }
                    (None, name.clone(), Some(*stat))
                }
                Found::Missing { names, must_be_dir } => {
                    last = missing(&place, names);
                    let Some((name, dirs)) = names.split_last() else {
                        return Err(spelled.not_found(&last));
                    };
                    if parents == Parents::Refuse || names.iter().any(|name| name == b"..") {
                        return Err(spelled.not_found(&last));
                    }
                    if *must_be_dir {
                        return Err(names_a_directory(&spelled));
                    }
                    let directory = place.directory(self.handle());
                    match make_dirs(directory, dirs, &place, &spelled, made)? {
                        Made::All(directory) => (directory, name.clone(), None),
                        Made::Moved => continue,
                    }
                }
            };
            return self.finish(&parsed, place, directory, name, existing);
        }
        Err(spelled.system("make the directories of", Errno::AGAIN, &last))
    }

    fn finish(
        &self,
        parsed: &Parsed<'_>,
        place: Place,
        made: Option<OwnedFd>,
        name: Vec<u8>,
        existing: Option<Stat>,
    ) -> Result<Target, PathError> {
        let real = place.path_of(&name);
        let (entered, found) = place.into_parts();
        let pin = match found {
            Found::Entry { handle, .. } => Some(handle),
            Found::Directory | Found::Missing { .. } => None,
        };
        let directory = match made.or(entered) {
            Some(directory) => directory,
            None => self.handle().try_clone_to_owned().map_err(|error| {
                let reason = format!("cannot open {}: {error}", self.spelled(parsed).shown());
                PathError::new(PathErrorKind::Other, reason)
            })?,
        };
        Ok(Target {
            directory,
            name,
            existing,
            _pin: pin,
            real,
            bytes: parsed.bytes.to_vec(),
            root: self.spelled(parsed).root.to_vec(),
            shown: parsed.shown(),
            memory_bytes: self.0.shared.limits.edit_bytes,
        })
    }
}

/// Directories that a change has made. Dropped, those that are still empty go: nothing came to stand in them.
///
/// One that somebody else uses meanwhile is not empty, or is made again by whoever finds it gone.
#[derive(Debug, Default)]
pub(super) struct MadeDirs(Vec<(OwnedFd, Vec<u8>)>);

impl Drop for MadeDirs {
    fn drop(&mut self) {
        for (parent, name) in self.0.drain(..).rev() {
            let _in_use = unlinkat(parent, name.as_slice(), AtFlags::REMOVEDIR);
        }
    }
}

enum Made {
    /// The last directory made; nothing where there was none to make.
    All(Option<OwnedFd>),
    /// Something else took a name meanwhile.
    Moved,
}

/// Makes directories one below the other. A name that is taken meanwhile is entered if it is a directory.
fn make_dirs(
    start: BorrowedFd<'_>,
    names: &[Vec<u8>],
    place: &Place,
    spelled: &Spelled<'_>,
    made: &mut MadeDirs,
) -> Result<Made, PathError> {
    let mut last: Option<OwnedFd> = None;
    for name in names {
        let directory = last.as_ref().map_or(start, AsFd::as_fd);
        // The kernel takes the umask away.
        let most = Mode::from_raw_mode(0o777);
        match mkdirat(directory, name.as_slice(), most) {
            Ok(()) => {
                if let Ok(parent) = directory.try_clone_to_owned() {
                    made.0.push((parent, name.clone()));
                }
            }
            Err(Errno::EXIST) => {}
            Err(Errno::NOENT) => return Ok(Made::Moved),
            Err(errno) => {
                return Err(spelled.system("make a directory for", errno, &place.fault(name)));
            }
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(directory, name.as_slice(), flags, Mode::empty()) {
            Ok(handle) => last = Some(handle),
            Err(Errno::LOOP | Errno::NOTDIR | Errno::NOENT) => return Ok(Made::Moved),
            Err(errno) => {
                return Err(spelled.system("make a directory for", errno, &place.fault(name)));
            }
        }
    }
    Ok(Made::All(last))
}

fn names_a_directory(spelled: &Spelled<'_>) -> PathError {
    PathError::new(
        PathErrorKind::IsADirectory,
        format!(
            "{} names a directory; leave out the `/` or `.` at its end to write a file of that name",
            spelled.shown()
        ),
    )
}
