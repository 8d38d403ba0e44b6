//! The pipes that a command's output comes through.
//!
//! Their writing ends are kept here until the shell has ended: a pipe's end says nothing that the shell's does not, and whoever
//! waits for both is woken three times in the moment in which the shell's processor still puts it away. No result may depend on
//! that: where many commands run, their descriptors are worth more.

use std::future::pending;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, pipe_with};
use tokio::net::unix::pipe;

use super::children;
use crate::near::Near;
use crate::wire::OutputStream;

/// Commands whose writing ends are kept, at two descriptors each.
pub const MOST_HELD: usize = 32;

/// What is asked of a pipe first.
const FIRST_READ: usize = 4 * 1024;

/// The reading ends.
#[derive(Debug)]
pub(super) struct Pipes {
    stdout: ReadingEnd,
    stderr: ReadingEnd,
}

/// The writing ends: a command's stdout and stderr.
#[derive(Debug)]
pub(super) struct WritingEnds {
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// One of them. It is kept when every writer has closed it: no result waits until it is put away.
#[derive(Debug)]
struct ReadingEnd {
    pipe: pipe::Receiver,
    /// Whether a first read has filled its room: most commands say little, and it is the room for much that costs.
    much: bool,
    closed: bool,
}

impl WritingEnds {
    /// Gives them up, when the shell has ended: the pipes are closed then, unless a process that it has left holds them.
    pub(super) fn release(self) {
        children::while_none_starts(|| drop(self));
    }
}

impl Pipes {
    pub(super) fn open(near: Option<&Near>) -> io::Result<(Self, WritingEnds)> {
        let _watcher = near.map(Near::watches);
        let (out, stdout) = one_pipe()?;
        let (err, stderr) = one_pipe()?;
        let pipes = Self {
            stdout: ReadingEnd::new(out),
            stderr: ReadingEnd::new(err),
        };
        Ok((pipes, WritingEnds { stdout, stderr }))
    }

    /// Has the current runtime watch them from now on.
    pub(super) fn go_along(self) -> io::Result<Self> {
        Ok(Self {
            stdout: self.stdout.go_along()?,
            stderr: self.stderr.go_along()?,
        })
    }

    /// Closes them where nobody writes to them but through `writing`; where somebody does, returns them with the current runtime
    /// watching.
    pub(super) fn close(self, writing: Option<WritingEnds>) -> io::Result<Option<Self>> {
        // No longer watched when the writing ends go: that would wake the watcher.
        let [out, err] = [self.stdout, self.stderr].map(|end| end.pipe.into_nonblocking_fd());
        let (out, err) = (out?, err?);
        if let Some(writing) = writing {
            writing.release();
        }
        if at_end(&out) && at_end(&err) {
            return Ok(None);
        }
        let watched = |end| pipe::Receiver::from_owned_fd_unchecked(end).map(ReadingEnd::new);
        Ok(Some(Self {
            stdout: watched(out)?,
            stderr: watched(err)?,
        }))
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

    /// Returns how many bytes one of them can hold.
    pub(super) fn capacity(&self, stream: OutputStream) -> usize {
        let end = match stream {
            OutputStream::Stdout => &self.stdout,
            OutputStream::Stderr => &self.stderr,
        };
        fcntl_getpipe_size(&end.pipe).unwrap_or(usize::MAX)
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

/// Makes a pipe; returns its other end too.
pub(super) fn one_pipe() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (reading, writing) = pipe_with(PipeFlags::CLOEXEC)?;
    // Of this end only: what a command writes to waits, as programs expect.
    fcntl_setfl(&reading, OFlags::NONBLOCK)?;
    Ok((pipe::Receiver::from_owned_fd_unchecked(reading)?, writing))
}

/// Has the current runtime watch what another one has watched.
pub(super) fn go_along(watched: pipe::Receiver) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd_unchecked(watched.into_nonblocking_fd()?)
}

/// Returns whether a pipe has come to its end; bytes that come so late are nobody's.
fn at_end(pipe: &OwnedFd) -> bool {
    matches!(rustix::io::read(pipe, &mut [0; FIRST_READ]), Ok(0))
}

impl ReadingEnd {
    fn new(pipe: pipe::Receiver) -> Self {
        let (much, closed) = (false, false);
        Self { pipe, much, closed }
    }

    fn go_along(self) -> io::Result<Self> {
        let pipe = go_along(self.pipe)?;
        Ok(Self { pipe, ..self })
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
        buffer.clear();
        let mut little = [const { MaybeUninit::uninit() }; FIRST_READ];
        let much = self.much;
        let mut look = || {
            if much {
                buffer.reserve_exact(chunk);
                return Ok(rustix::io::read(&self.pipe, spare_capacity(buffer))?);
            }
            let (read, _) = rustix::io::read(&self.pipe, &mut little)?;
            buffer.extend_from_slice(read);
            Ok(read.len())
        };
        // What has just come is there before the runtime has heard of it.
        let got = self.pipe.try_io(&mut look).or_else(|_| look());
        self.much |= matches!(got, Ok(FIRST_READ));
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
