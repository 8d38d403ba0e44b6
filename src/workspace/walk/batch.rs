//! Reading a directory by its handle, a bounded batch at a time.
//!
//! Raw entries come straight from the kernel, so that a directory of a million names never stands in memory as a
//! whole. Nothing here opens a path.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, RawDir, SeekFrom, statat};
use rustix::io::Errno;

/// What a directory entry is, links not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A FIFO, socket or device.
    Special,
    /// It could not be told.
    Unknown,
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Link,
            FileType::Unknown => Self::Unknown,
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice => Self::Special,
        }
    }
}

/// Where reading goes on: the kernel's cookie after the last entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cookie(u64);

impl Cookie {
    /// The beginning of a directory.
    pub(crate) const START: Self = Self(0);
}

/// Entries of one directory, kept in buffers that are used again.
#[derive(Debug)]
pub(crate) struct Batch {
    raw: Vec<u8>,
    names: Vec<u8>,
    entries: Vec<(usize, usize, Kind)>,
}

/// The kernel fills at most this much at once; it holds more than a hundred of the longest names.
const RAW_BYTES: usize = 32 * 1024;
/// A batch ends with the first full buffer after this many entries.
const ENTRIES: usize = 512;

impl Batch {
    /// Makes an empty batch.
    pub(crate) fn new() -> Self {
        Self {
            raw: Vec::with_capacity(RAW_BYTES),
            names: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Reads on from where `dir` stands, or from `from`. Returns where to go on, `None` at the end.
    ///
    /// # Errors
    /// What the kernel says; entries read before it are kept.
    pub(crate) fn fill(
        &mut self,
        dir: BorrowedFd<'_>,
        from: Option<Cookie>,
    ) -> Result<Option<Cookie>, Errno> {
        self.names.clear();
        self.entries.clear();
        if let Some(Cookie(offset)) = from {
            rustix::fs::seek(dir, SeekFrom::Start(offset))?;
        }
        let mut raw = RawDir::new(dir, self.raw.spare_capacity_mut());
        let mut next = None;
        loop {
            if raw.is_buffer_empty() && self.entries.len() >= ENTRIES {
                return Ok(next);
            }
            let Some(entry) = raw.next() else {
                return Ok(None);
            };
            let entry = match entry {
                // The directory was removed while it was read: its end.
                Err(Errno::NOENT) => return Ok(None),
                other => other?,
            };
            next = Some(Cookie(entry.next_entry_cookie()));
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let mut kind = Kind::from(entry.file_type());
            if kind == Kind::Unknown {
                kind = kind_of(dir, name).unwrap_or(kind);
            }
            let start = self.names.len();
            self.names.extend_from_slice(name.to_bytes_with_nul());
            self.entries.push((start, self.names.len(), kind));
        }
    }

    /// Returns the names and kinds read, in the kernel's order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&CStr, Kind)> {
        self.entries.iter().filter_map(|&(start, end, kind)| {
            let name = CStr::from_bytes_with_nul(self.names.get(start..end)?).ok()?;
            Some((name, kind))
        })
    }
}

/// Tells what stands in a directory under a name, links not followed; `None` where nothing does, or it cannot be told.
pub(crate) fn kind_of(dir: impl AsFd, name: impl rustix::path::Arg) -> Option<Kind> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_directory_is_read_whole_in_batches_also_by_cookie() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..1_500 {
            std::fs::create_dir(dir.path().join(format!("{n:040}"))).unwrap();
        }
        let mut names = std::collections::BTreeSet::new();
        let mut batch = Batch::new();
        let mut from = None;
        loop {
            // A handle made anew for each batch shows that the cookie alone is enough.
            let handle = open(dir.path());
            let next = batch.fill(handle.as_fd(), from).unwrap();
            for (name, kind) in batch.entries() {
                assert_eq!(kind, Kind::Directory);
                assert!(names.insert(name.to_owned()), "{name:?} came twice");
            }
            assert!(batch.entries().count() < 1_400);
            match next {
                Some(cookie) => from = Some(cookie),
                None => break,
            }
        }
        assert_eq!(names.len(), 1_500);
    }

    fn open(path: &std::path::Path) -> std::os::fd::OwnedFd {
        use rustix::fs::{Mode, OFlags};
        rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }
}
