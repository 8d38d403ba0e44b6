//! The start of a program, as the kernel is asked for it.
//!
//! `std` would put the environment together three times for each start, and could not reset the signals that this process ignores.

use std::borrow::Cow;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::SigSet;
use nix::unistd::Pid;
use rustix::fs::{Mode, OFlags};

/// A program and what it gets. It leads a process group of its own.
#[derive(Debug)]
pub(super) struct Launch<'l> {
    /// Its absolute path.
    pub(super) program: &'l Path,
    /// What it is called, then its arguments.
    pub(super) args: &'l [&'l CStr],
    pub(super) env: &'l [Cow<'l, CStr>],
    /// Where it starts.
    pub(super) directory: BorrowedFd<'l>,
    /// Its stdin, this process's copy of which is closed when it has started.
    pub(super) stdin: OwnedFd,
    /// Its stdout and stderr. It gets no other descriptor, since all of this process's are closed on `exec`.
    pub(super) outputs: [BorrowedFd<'l>; 2],
}

impl Launch<'_> {
    /// Starts it in the directory where this process stands; returns its number. Its signals are as for a program that nobody started in
    /// the background: a shell cannot trap one that was ignored when it began.
    pub(super) fn start(&self) -> io::Result<u32> {
        let mut actions = PosixSpawnFileActions::init()?;
        let [stdout, stderr] = self.outputs;
        for (number, stream) in (0..).zip([self.stdin.as_fd(), stdout, stderr]) {
            actions.add_dup2(stream.as_raw_fd(), number)?;
        }
        let mut attributes = PosixSpawnAttr::init()?;
        attributes.set_flags(
            PosixSpawnFlags::POSIX_SPAWN_SETPGROUP
                | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
                | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK,
        )?;
        attributes.set_pgroup(Pid::from_raw(0))?;
        attributes.set_sigdefault(&SigSet::all())?;
        attributes.set_sigmask(&SigSet::empty())?;
        let pid = posix_spawn(self.program, &actions, &attributes, self.args, self.env)?;
        u32::try_from(pid.as_raw()).map_err(io::Error::other)
    }
}

/// Opens a directory to stand in.
pub(super) fn directory(path: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Opens `/dev/null` for reading or for writing. Each program gets one of its own: what it sets on it (`O_NONBLOCK`, a lock) would be
/// set for whoever shared it.
pub(super) fn null(access: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open("/dev/null", access | OFlags::CLOEXEC, Mode::empty())
}
