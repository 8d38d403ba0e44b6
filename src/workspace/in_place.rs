//! Writing over a file that cannot be replaced: its directory forbids it, or it is more than one name.
//!
//! A copy of the old content is kept until the new one is on the disk, and written back if that fails. Once the
//! writing has begun it runs to its end, whatever the stop signal says.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, OFlags, Stat, fallocate};
use rustix::io::Errno;

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
        if len > size {
            // A full disk is noticed before anything is overwritten.
            let room = fallocate(writer, FallocateFlags::KEEP_SIZE, 0, len);
            if let Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) = room {
                return Err(self.system("write", errno).into());
            }
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

    fn keep_copy(
        &self,
        mut reader: &File,
        size: u64,
        stop: &Stop,
    ) -> Result<Box<dyn ReadSeek>, ReplaceError> {
        let temp = if size > SMALL {
            Temp::create(&self.directory, 0o600).ok()
        } else {
            None
        };
        if temp.is_none() && size > self.memory_bytes {
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
        let mut copy: Box<dyn ReadSeek> = match temp {
            // The name goes at once, the file stays while it is open.
            Some(temp) => Box::new(
                temp.file
                    .try_clone()
                    .map_err(|error| self.io("keep a copy of", &error))?,
            ),
            None => Box::new(io::Cursor::new(Vec::new())),
        };
        let mut block = vec![0; BLOCK];
        loop {
            check(stop)?;
            let read = match reader.read(&mut block) {
                Ok(0) => return Ok(copy),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.io("keep a copy of", &error).into()),
            };
            copy.write_all(block.get(..read).unwrap_or_default())
                .map_err(|error| self.io("keep a copy of", &error))?;
        }
    }
}

/// The kept copy.
pub(super) trait ReadSeek: Read + Write + Seek {}
impl<T: Read + Write + Seek> ReadSeek for T {}

/// Writes `content` over `surface`, or else the copy.
pub(super) fn overwrite(
    surface: &impl Surface,
    content: &[u8],
    copy: &mut dyn ReadSeek,
    old_len: u64,
) -> Result<(), OverwriteError> {
    let Err(error) = pour(surface, &mut &*content) else {
        return Ok(());
    };
    let back = copy
        .seek(SeekFrom::Start(0))
        .and_then(|_| pour(surface, copy));
    match back {
        Ok(len) if len == old_len => Err(OverwriteError::RolledBack(error)),
        _ => Err(OverwriteError::Torn(error)),
    }
}

/// Makes the surface hold exactly what `source` gives; returns how much that is.
fn pour(surface: &impl Surface, source: &mut dyn Read) -> io::Result<u64> {
    let mut block = vec![0; BLOCK];
    let mut at = 0;
    loop {
        match source.read(&mut block) {
            Ok(0) => break,
            Ok(read) => {
                surface.put(block.get(..read).unwrap_or_default(), at)?;
                at += u64::try_from(read).unwrap_or(0);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    surface.cut(at)?;
    surface.sync()?;
    Ok(at)
}
