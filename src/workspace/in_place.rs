//! Writing over a file that cannot be replaced: its directory forbids it, or it is more than one name.
//!
//! A copy of the old content is kept until the new one is on the disk, and written back if that fails. Once the
//! writing has begun it runs to its end, whatever the stop signal says.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, OFlags, Stat, fallocate};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::error::{PathError, PathErrorKind};
use super::metadata::restore_mode;
use super::replace::{BLOCK, ReplaceError, Seen, check};
use super::target::Target;
use super::temp::Temp;
use crate::stop::Stop;

/// A larger copy goes to a file, where the directory takes one.
const SMALL: u64 = 1024 * 1024;

/// What is written over; a trait so that tests can let it fail.
pub(super) trait Surface {
    fn put(&self, block: &[u8], at: u64) -> io::Result<()>;
    fn cut(&self, len: u64) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
}

impl Surface for File {
    fn put(&self, block: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(block, at)
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Why new content was not written.
#[derive(Debug)]
pub(super) enum OverwriteError {
    /// The old content is back.
    RolledBack(io::Error),
    /// Neither the new content nor the old one could be written whole.
    Torn(io::Error),
}

impl Target {
    pub(super) fn write_in_place(
        &self,
        writer: &File,
        stat: &Stat,
        content: &[u8],
        seen: Option<&Seen>,
        stop: &Stop,
    ) -> Result<(), ReplaceError> {
        let (reader, _) = self
            .open(OFlags::RDONLY)
            .map_err(|errno| self.system("keep a copy of", errno))?
            .ok_or(ReplaceError::Moved)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let mut copy = self.keep_copy(&reader, size, stop)?;
        let len = u64::try_from(content.len()).unwrap_or(u64::MAX);
        check(stop)?;
        self.check_unchanged(seen)?;
        if let Err(errno) = check_room(writer, len, size) {
            return Err(self.system("write", errno).into());
        }
        overwrite(writer, content, copy.as_mut(), size).map_err(|error| match error {
            OverwriteError::RolledBack(error) => PathError::new(
                PathErrorKind::Other,
                format!("{}; the old content is back", self.io("write", &error)),
            ),
            OverwriteError::Torn(error) => PathError::new(
                PathErrorKind::Other,
                format!(
                    "cannot write `{}`: {error}; writing the old content back failed too, so the file may hold parts of \
                     both: write it again",
                    self.spelled()
                ),
            ),
        })?;
        restore_mode(writer, stat).map_err(|errno| self.system("set the mode of", errno).into())
    }

    /// Keeps what the file holds: a large copy in a file, where the directory and the disk take it, else in memory.
    fn keep_copy(
        &self,
        mut reader: &File,
        size: u64,
        stop: &Stop,
    ) -> Result<Box<dyn ReadSeek>, ReplaceError> {
        if size > SMALL
            && let Ok(temp) = Temp::create(&self.directory, 0o600)
            && let Ok(file) = temp.file.try_clone()
        {
            // The name goes at once, the file stays while it is open.
            drop(temp);
            match self.copy(reader, Box::new(file), stop)? {
                Ok(copy) => return Ok(copy),
                Err(_full) => reader
                    .rewind()
                    .map_err(|error| self.io("keep a copy of", &error))?,
            }
        }
        if size > self.memory_bytes {
            return Err(PathError::new(
                PathErrorKind::Other,
                format!(
                    "`{}` ({size} bytes) can only be written in place, and a copy of it can be kept neither in its \
                     directory nor in memory ({} bytes at most)",
                    self.spelled(),
                    self.memory_bytes
                ),
            )
            .into());
        }
        let memory = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        let kept = self.copy(reader, Box::new(io::Cursor::new(memory)), stop)?;
        kept.map_err(|error| self.io("keep a copy of", &error).into())
    }

    /// Copies to the end; `Ok(Err(_))` where the copy, not the file, is at fault.
    fn copy(
        &self,
        mut reader: &File,
        mut copy: Box<dyn ReadSeek>,
        stop: &Stop,
    ) -> Result<io::Result<Box<dyn ReadSeek>>, ReplaceError> {
        let mut block = vec![0; BLOCK];
        loop {
            check(stop)?;
            let read = match reader.read(&mut block) {
                Ok(0) => return Ok(Ok(copy)),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.io("keep a copy of", &error).into()),
            };
            if let Err(error) = copy.write_all(block.get(..read).unwrap_or_default()) {
                return Ok(Err(error));
            }
        }
    }
}

/// Notices a full disk or a limit before anything is overwritten.
fn check_room(writer: &File, len: u64, size: u64) -> Result<(), Errno> {
    // The kernel holds an allocation that keeps the size against the file system's limit only.
    let limit = getrlimit(Resource::Fsize).current;
    if limit.is_some_and(|limit| len > limit) {
        return Err(Errno::FBIG);
    }
    if len == 0 {
        return Ok(());
    }
    match fallocate(writer, FallocateFlags::KEEP_SIZE, 0, len) {
        Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
            // What there was room for is given back, or the rest of the disk would stay with this file.
            let _kept = writer.set_len(size);
            Err(errno)
        }
        // Not every file system can tell; there the rollback must do.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The kept copy.
pub(super) trait ReadSeek: Read + Write + Seek {}
impl<T: Read + Write + Seek> ReadSeek for T {}

/// Writes `content` over `surface`, or else what it has overwritten of the copy: the rest may not be writable any more.
pub(super) fn overwrite(
    surface: &impl Surface,
    content: &[u8],
    copy: &mut dyn ReadSeek,
    old_len: u64,
) -> Result<(), OverwriteError> {
    let mut touched = 0;
    let Err(error) = pour(surface, &mut &*content, &mut touched).and_then(|len| {
        // What is cut off is lost too.
        touched = u64::MAX;
        settle(surface, len)
    }) else {
        return Ok(());
    };
    let back = copy
        .seek(SeekFrom::Start(0))
        .and_then(|_| pour(surface, &mut copy.take(touched), &mut 0))
        .and_then(|len| settle(surface, old_len).map(|()| len));
    match back {
        Ok(len) if len == touched.min(old_len) => Err(OverwriteError::RolledBack(error)),
        _ => Err(OverwriteError::Torn(error)),
    }
}

/// Writes what `source` gives over the surface's head; returns how much that is. `touched` is how far it may have got.
fn pour(surface: &impl Surface, source: &mut dyn Read, touched: &mut u64) -> io::Result<u64> {
    let mut block = vec![0; BLOCK];
    let mut at = 0;
    loop {
        match source.read(&mut block) {
            Ok(0) => return Ok(at),
            Ok(read) => {
                let next = at + u64::try_from(read).unwrap_or(0);
                *touched = next;
                surface.put(block.get(..read).unwrap_or_default(), at)?;
                at = next;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Gives the surface its length and brings it to the disk.
fn settle(surface: &impl Surface, len: u64) -> io::Result<()> {
    surface.cut(len)?;
    surface.sync()
}
