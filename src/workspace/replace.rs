//! A file is wholly old or wholly new at any moment.
//!
//! The new content grows in a temporary file beside the target, reaches the disk and then takes the target's name.
//! Where a directory forbids that, or the file is more than one name, it is written in place.

use std::fs::File;
use std::io::{Read, Write};

use rustix::fs::{AtFlags, Mode, OFlags, Stat, fsync, openat, statat};
use rustix::io::Errno;

use super::error::PathError;
use super::metadata::hand_on;
use super::target::{Target, is_same};
use super::temp::Temp;
use crate::stop::{Stop, StopCause};

/// Bytes written or read between two looks at the stop signal.
pub(super) const BLOCK: usize = 1024 * 1024;

/// What a replacement did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replaced {
    /// The size of what was there; nothing where the file is new.
    pub(crate) old_bytes: Option<u64>,
}

/// Why a file was not replaced. Its content is the old one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplaceError {
    /// The path or the system forbids it.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The stop signal came first.
    #[error("stopped")]
    Stopped(StopCause),
    /// The name has come to mean something else: resolve again.
    #[error("the target has changed")]
    Moved,
}

/// What the file was when it was read, to notice a change by somebody else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen(Stat);

/// Why the name could not be given to a new file.
pub(super) enum SwapError {
    /// The directory or the file system forbids it: write in place.
    Forbidden(Errno),
    Ended(ReplaceError),
}

impl From<ReplaceError> for SwapError {
    fn from(error: ReplaceError) -> Self {
        Self::Ended(error)
    }
}

impl Target {
    /// Reads the whole file, if it has no more than `max` bytes.
    ///
    /// # Errors
    /// [`ReplaceError`]; a larger file is `Ok(Err(size))`.
    pub(crate) fn read(
        &self,
        max: u64,
        stop: &Stop,
    ) -> Result<Result<(Vec<u8>, Seen), u64>, ReplaceError> {
        let (mut file, stat) = self
            .open(OFlags::RDONLY)
            .map_err(|errno| self.system("read", errno))?
            .ok_or(ReplaceError::Moved)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if size > max {
            return Ok(Err(size));
        }
        let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
        loop {
            check(stop)?;
            let block = u64::try_from(BLOCK).unwrap_or(u64::MAX);
            match (&mut file).take(block).read_to_end(&mut content) {
                Ok(0) => return Ok(Ok((content, Seen(stat)))),
                Ok(_) if u64::try_from(content.len()).is_ok_and(|len| len <= max) => {}
                Ok(_) => return Ok(Err(size)),
                Err(error) => return Err(self.io("read", &error).into()),
            }
        }
    }

    /// Gives the file new content, or makes it.
    ///
    /// `seen` is what the content was made from; if the file is no longer that, nothing is written.
    ///
    /// # Errors
    /// [`ReplaceError`]; the old content stays.
    pub(crate) fn replace(
        &self,
        content: &[u8],
        seen: Option<&Seen>,
        stop: &Stop,
    ) -> Result<Replaced, ReplaceError> {
        if self.existing.is_none() {
            self.create(content, stop)?;
            return Ok(Replaced { old_bytes: None });
        }
        // Renaming asks nothing of the file itself: only opening it tells whether the user may write it.
        let (writer, stat) = match self.open(OFlags::WRONLY) {
            Ok(opened) => opened.map(|(file, stat)| (Some(file), stat)),
            // A running program may be replaced, not written.
            Err(Errno::TXTBSY) => self
                .open(OFlags::RDONLY)
                .map_err(|errno| self.system("read", errno))?
                .map(|(_, stat)| (None, stat)),
            Err(errno) => return Err(self.system("write", errno).into()),
        }
        .ok_or(ReplaceError::Moved)?;
        let old_bytes = u64::try_from(stat.st_size).ok();
        if stat.st_nlink == 1 {
            match self.swap(writer.as_ref(), &stat, content, seen, stop) {
                Ok(()) => return Ok(Replaced { old_bytes }),
                Err(SwapError::Ended(error)) => return Err(error),
                Err(SwapError::Forbidden(errno)) if writer.is_none() => {
                    return Err(self.system("replace", errno).into());
                }
                Err(SwapError::Forbidden(_)) => {}
            }
        }
        let Some(writer) = writer else {
            return Err(self.system("write", Errno::TXTBSY).into());
        };
        self.write_in_place(&writer, &stat, content, seen, stop)?;
        Ok(Replaced { old_bytes })
    }

    fn create(&self, content: &[u8], stop: &Stop) -> Result<(), ReplaceError> {
        let failed = |errno| match errno {
            Errno::NOENT | Errno::EXIST => ReplaceError::Moved,
            other => self.system("create", other).into(),
        };
        let temp = Temp::create(&self.directory, 0o666).map_err(failed)?;
        self.fill(&temp.file, content, stop)?;
        self.sync(&temp.file)?;
        check(stop)?;
        temp.rename_new(&self.name).map_err(failed)?;
        self.sync_directory();
        Ok(())
    }

    fn swap(
        &self,
        old: Option<&File>,
        stat: &Stat,
        content: &[u8],
        seen: Option<&Seen>,
        stop: &Stop,
    ) -> Result<(), SwapError> {
        // Nobody else may read the new content before it has the old mode.
        let temp = Temp::create(&self.directory, 0o600).map_err(|errno| self.sort(errno))?;
        let reader;
        let old = if let Some(old) = old {
            old
        } else {
            let opened = self.open(OFlags::RDONLY).map_err(SwapError::Forbidden)?;
            reader = opened.ok_or(ReplaceError::Moved)?.0;
            &reader
        };
        self.fill(&temp.file, content, stop)?;
        // After writing, which takes set-id bits and capabilities away.
        hand_on(old, stat, &temp.file).map_err(SwapError::Forbidden)?;
        self.sync(&temp.file)?;
        check(stop)?;
        self.check_unchanged(seen)?;
        temp.rename_over(&self.name)
            .map_err(|errno| self.sort(errno))?;
        self.sync_directory();
        Ok(())
    }

    /// Tells what forbids a replacement but not a write in place from what forbids both.
    fn sort(&self, errno: Errno) -> SwapError {
        match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::BUSY | Errno::XDEV => {
                SwapError::Forbidden(errno)
            }
            Errno::NOENT => SwapError::Ended(ReplaceError::Moved),
            other => SwapError::Ended(self.system("replace", other).into()),
        }
    }

    fn fill(&self, mut file: &File, content: &[u8], stop: &Stop) -> Result<(), ReplaceError> {
        for block in content.chunks(BLOCK) {
            check(stop)?;
            file.write_all(block)
                .map_err(|error| self.io("write", &error))?;
        }
        Ok(())
    }

    fn sync(&self, file: &File) -> Result<(), ReplaceError> {
        fsync(file).map_err(|errno| self.system("write", errno).into())
    }

    /// Returns [`ReplaceError::Moved`] where the name or, if it was read, the content is another's by now.
    pub(super) fn check_unchanged(&self, seen: Option<&Seen>) -> Result<(), ReplaceError> {
        let now = statat(
            &self.directory,
            self.name.as_slice(),
            AtFlags::SYMLINK_NOFOLLOW,
        )
        .map_err(|errno| match errno {
            Errno::NOENT => ReplaceError::Moved,
            other => self.system("look at", other).into(),
        })?;
        let same = match seen {
            Some(Seen(then)) => is_same(then, &now) && stamp(then) == stamp(&now),
            None => self.existing.is_some_and(|then| is_same(&then, &now)),
        };
        if same {
            Ok(())
        } else {
            Err(ReplaceError::Moved)
        }
    }

    /// Makes the new name reach the disk. A directory that may not be read cannot be synced; the file is there all the same.
    fn sync_directory(&self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(directory) = openat(&self.directory, ".", flags, Mode::empty()) {
            let _unsynced = fsync(directory);
        }
    }

    pub(super) fn io(&self, doing: &str, error: &std::io::Error) -> PathError {
        self.system(doing, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }
}

/// Looks at the stop signal.
pub(super) fn check(stop: &Stop) -> Result<(), ReplaceError> {
    stop.cause()
        .map_or(Ok(()), |cause| Err(ReplaceError::Stopped(cause)))
}

fn stamp(stat: &Stat) -> (i64, i64, i64, i64, i64) {
    (
        stat.st_size,
        stat.st_mtime,
        i64::try_from(stat.st_mtime_nsec).unwrap_or(0),
        stat.st_ctime,
        i64::try_from(stat.st_ctime_nsec).unwrap_or(0),
    )
}
