//! The pipes that a command's output comes through.
//!
//! Their writing ends must be kept here until the shell has ended: a pipe's end says nothing that the shell's does not, and whoever
//! waits for both is woken three times in the moment in which the shell's processor still puts it away.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe;

use super::children;
use crate::wire::OutputStream;

/// What is asked of a pipe first.
const FIRST_READ: usize = 4 * 1024;

/// A pipe that nobody waits for yet.
#[derive(Debug)]
pub(super) struct RawPipe {
    reading: OwnedFd,
    writing: OwnedFd,
}

/// Both pipes of a command that has not been started.
#[derive(Debug)]
pub(super) struct UnwatchedPipes {
    stdout: RawPipe,
    stderr: RawPipe,
}

/// The reading ends, and the writing ends as long as the shell runs.
#[derive(Debug)]
pub(super) struct Pipes {
    stdout: ReadingEnd,
    stderr: ReadingEnd,
    writing: Option<[OwnedFd; 2]>,
}

/// One of them. It is kept when every writer has closed it: to put it away takes two system calls that no result waits for.
#[derive(Debug)]
struct ReadingEnd {
    pipe: pipe::Receiver,
    closed: bool,
}

impl RawPipe {
    pub(super) fn open() -> io::Result<Self> {
        let (reading, writing) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self { reading, writing })
    }

    pub(super) fn writing(&self) -> BorrowedFd<'_> {
        self.writing.as_fd()
    }

    /// Waits for what comes from now on; returns the other end too.
    pub(super) fn watch(self) -> io::Result<(pipe::Receiver, OwnedFd)> {
        // Of this end only: what a command writes to waits, as programs expect.
        fcntl_setfl(&self.reading, OFlags::NONBLOCK)?;
        let receiver = pipe::Receiver::from_owned_fd_unchecked(self.reading)?;
        Ok((receiver, self.writing))
    }
}

impl UnwatchedPipes {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            stdout: RawPipe::open()?,
            stderr: RawPipe::open()?,
        })
    }

    /// Returns a command's stdout and stderr.
    pub(super) fn writing(&self) -> [BorrowedFd<'_>; 2] {
        [self.stdout.writing(), self.stderr.writing()]
    }

    /// Waits for what comes from now on. Best done when the command has been started, which need not wait for that.
    pub(super) fn watch(self) -> io::Result<Pipes> {
        let (stdout, out) = self.stdout.watch()?;
        let (stderr, err) = self.stderr.watch()?;
        Ok(Pipes {
            stdout: ReadingEnd::new(stdout),
            stderr: ReadingEnd::new(stderr),
            writing: Some([out, err]),
        })
    }
}

impl Pipes {
    /// Gives the writing ends up, when the shell has ended: the pipes are closed now unless a process that it has left holds them.
    pub(super) fn release(&mut self) {
        children::while_none_starts(|| drop(self.writing.take()));
    }

    /// Returns whether every writer has closed them.
    pub(super) fn closed(&self) -> bool {
        self.stdout.closed && self.stderr.closed
    }

    /// Waits until one of them can be read; for ever where both are closed.
    pub(super) async fn readable(&self) -> OutputStream {
        // An error shows itself again when it is read.
        tokio::select! {
            _ = self.stdout.readable() => OutputStream::Stdout,
            _ = self.stderr.readable() => OutputStream::Stderr,
        }
    }

    /// Reads what is there; `false` where nothing is.
    pub(super) fn read(
        &mut self,
        stream: OutputStream,
        buffer: &mut Vec<u8>,
        chunk: usize,
    ) -> bool {
        let end = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        end.read(buffer, chunk)
    }

    /// Reads and drops everything until every writer has closed them.
    pub(super) async fn discard(mut self, chunk: usize) {
        let mut buffer = Vec::new();
        while !self.closed() {
            let stream = self.readable().await;
            self.read(stream, &mut buffer, chunk);
        }
    }
}

impl ReadingEnd {
    fn new(pipe: pipe::Receiver) -> Self {
        let closed = false;
        Self { pipe, closed }
    }

    async fn readable(&self) -> io::Result<()> {
        if self.closed {
            pending().await
        } else {
            self.pipe.readable().await
        }
    }

    fn read(&mut self, buffer: &mut Vec<u8>, chunk: usize) -> bool {
        if self.closed {
            return false;
        }
        // Most commands say little: the room for much comes once the room for little was filled.
        let filled = !buffer.is_empty() && buffer.len() == buffer.capacity();
        let room = if filled { chunk } else { FIRST_READ };
        buffer.clear();
        buffer.reserve_exact(room);
        let mut look = || Ok(rustix::io::read(&self.pipe, spare_capacity(buffer))?);
        // What has just come is there before the runtime has heard of it.
        let got = self.pipe.try_io(&mut look).or_else(|_| look());
        match got {
            Ok(got) if got > 0 => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            _ => {
                self.closed = true;
                false
            }
        }
    }
}
