//! A file beside its target until it takes the target's name; otherwise it goes with its owner.
//!
//! An exclusive lock tells a living one from what a killed daemon left behind.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, RenameFlags, flock, fstat, openat, renameat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;

/// What the names of all such files begin with.
const PREFIX: &[u8] = b".bma-tmp-";
/// Hexadecimal digits that follow.
const DIGITS: usize = 16;

/// A temporary file; dropping it removes it.
#[derive(Debug)]
pub(super) struct Temp<'d> {
    directory: BorrowedFd<'d>,
    name: Option<Vec<u8>>,
    pub(super) file: File,
}

impl<'d> Temp<'d> {
    /// Makes one in a directory; the kernel takes the umask away from `mode`.
    pub(super) fn create(directory: &'d impl AsFd, mode: u32) -> Result<Self, Errno> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = directory.as_fd();
        loop {
            let name = random_name()?;
            match openat(directory, name.as_slice(), flags, Mode::from_raw_mode(mode)) {
                Ok(handle) => {
                    let file = File::from(handle);
                    if is_claimed(&file)? {
                        return Ok(Self {
                            directory,
                            name: Some(name),
                            file,
                        });
                    }
                }
                Err(Errno::EXIST | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Gives the file a name in its directory, in place of what has it.
    pub(super) fn rename_over(mut self, name: &[u8]) -> Result<(), Errno> {
        if let Some(own) = &self.name {
            renameat(self.directory, own.as_slice(), self.directory, name)?;
            self.name = None;
        }
        Ok(())
    }

    /// Gives the file a name in its directory that nothing has.
    pub(super) fn rename_new(mut self, name: &[u8]) -> Result<(), Errno> {
        if let Some(own) = &self.name {
            let (from, to) = (self.directory, self.directory);
            match renameat_with(from, own.as_slice(), to, name, RenameFlags::NOREPLACE) {
                // Not every file system has it; there the name was looked up a moment ago.
                Err(Errno::INVAL | Errno::NOSYS) => renameat(from, own.as_slice(), to, name)?,
                other => other?,
            }
            self.name = None;
        }
        Ok(())
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            // What cannot be removed now is removed as a leftover at the next start.
            let _left = unlinkat(self.directory, name.as_slice(), AtFlags::empty());
        }
    }
}

/// Locks a new file; false where a daemon that clears leftovers took it for one before it was locked.
fn is_claimed(file: &File) -> Result<bool, Errno> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN) => Ok(false),
        // Where the file system has no locks, leftovers are never removed either.
        Ok(()) | Err(_) => Ok(fstat(file)?.st_nlink > 0),
    }
}

fn random_name() -> Result<Vec<u8>, Errno> {
    let random = getrandom::u64().map_err(|_unavailable| Errno::IO)?;
    Ok([PREFIX, format!("{random:016x}").as_bytes()].concat())
}

/// Tells whether a name is one that [`Temp`] gives.
pub(super) fn is_temp_name(name: &[u8]) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|digits| {
        digits.len() == DIGITS
            && digits
                .iter()
                .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}
