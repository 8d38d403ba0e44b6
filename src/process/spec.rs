//! One command as the shell gets it.
//!
//! It must never add text to a command, on whose lines it could be swallowed, nor look up a directory twice.

use std::ffi::{CStr, CString, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::OFlags;

use super::launch;
use crate::workspace::Directory;

/// What to run, and how.
#[derive(Debug)]
pub(crate) struct Spec {
    /// What bash runs.
    pub(crate) command: String,
    /// Where.
    pub(crate) cwd: Directory,
    /// Variables above all others.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// When to end it.
    pub(crate) timeout: Duration,
}

/// Longest argument that the kernel takes, its end included (`MAX_ARG_STRLEN`).
const ARGUMENT_BYTES: usize = 128 * 1024;

/// Runs a command that is too long for an argument. It arrives as a file on standard input, which is empty again
/// before the first line runs; everything stands on line 1, so that the command's lines keep their numbers.
const FROM_STDIN: &CStr = cr#"IFS= read -r -d "" REPLY; exec </dev/null; eval "$REPLY""#;

/// Comes before a long command and hides how it came.
const HIDE: &[u8] = b"unset -v REPLY;";

/// Returns what bash is told to run, and its stdin.
pub(super) fn told(command: &str) -> io::Result<(CString, OwnedFd)> {
    if command.len() < ARGUMENT_BYTES {
        Ok((CString::new(command)?, launch::null(OFlags::RDONLY)?))
    } else {
        Ok((FROM_STDIN.to_owned(), as_file(command)?.into()))
    }
}

fn as_file(command: &str) -> io::Result<File> {
    use std::io::Seek as _;
    let mut file = File::from(rustix::fs::memfd_create(
        "command",
        rustix::fs::MemfdFlags::CLOEXEC,
    )?);
    file.write_all(HIDE)?;
    file.write_all(command.as_bytes())?;
    file.rewind()?;
    Ok(file)
}
