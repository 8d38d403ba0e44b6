//! Both pipes of a command, read at all times, and everything that wants a share of what they carry.
//!
//! It must never stop reading for a reader of its own: only the disk throttles, and only while it is being written to.

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe;

use super::capture::Capture;
use super::feed::Feed;
use super::spill::{Spill, SpillReport};
use crate::limits::Limits;
use crate::progress::Progress;
use crate::wire::OutputStream;
use crate::workspace::Workspace;

/// Pipes full that are still taken when the time for draining is over, so that a busy machine loses nothing.
const LAST_CHUNKS: usize = 16;

/// What is asked of a pipe first.
const FIRST_READ: usize = 4 * 1024;

/// The output of one command.
#[derive(Debug)]
pub(super) struct Output {
    pipes: Pipes,
    stdout: Capture,
    stderr: Capture,
    feed: Feed,
    progress: Progress,
    spill: Option<Spill>,
    buffer: Vec<u8>,
    workspace: Workspace,
    limits: Arc<Limits>,
}

/// The reading ends.
#[derive(Debug)]
pub(super) struct Pipes {
    stdout: ReadingEnd,
    stderr: ReadingEnd,
}

/// One of them. It is kept when every writer has closed it: to put it away takes two system calls that no result waits for.
#[derive(Debug)]
struct ReadingEnd {
    pipe: pipe::Receiver,
    closed: bool,
}

impl Pipes {
    /// Makes both pipes; returns their other ends too, for the command's stdout and stderr.
    pub(super) fn open() -> io::Result<(Self, OwnedFd, OwnedFd)> {
        let (stdout, out) = one_pipe()?;
        let (stderr, err) = one_pipe()?;
        let pipes = Self {
            stdout: ReadingEnd::new(stdout),
            stderr: ReadingEnd::new(stderr),
        };
        Ok((pipes, out, err))
    }

    /// Returns whether every writer has closed them.
    pub(super) fn closed(&self) -> bool {
        self.stdout.closed && self.stderr.closed
    }

    /// Waits until one of them can be read; for ever where both are closed.
    async fn readable(&self) -> OutputStream {
        // An error shows itself again when it is read.
        tokio::select! {
            _ = self.stdout.readable() => OutputStream::Stdout,
            _ = self.stderr.readable() => OutputStream::Stderr,
        }
    }

    /// Reads what is there; `false` where nothing is.
    fn read(&mut self, stream: OutputStream, buffer: &mut Vec<u8>, chunk: usize) -> bool {
        let end = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        if end.closed {
            return false;
        }
        // Most commands say little: the room for much comes once the room for little was filled.
        let got = if buffer.capacity() < chunk && buffer.len() < FIRST_READ {
            let mut first = [0; FIRST_READ];
            let got = end.pipe.try_read(&mut first);
            buffer.clear();
            let read = got.as_ref().ok().and_then(|got| first.get(..*got));
            buffer.extend_from_slice(read.unwrap_or_default());
            got
        } else {
            buffer.clear();
            buffer.reserve_exact(chunk);
            end.pipe.try_read_buf(buffer)
        };
        match got {
            Ok(got) if got > 0 => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            _ => {
                end.closed = true;
                false
            }
        }
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
}

impl Output {
    pub(super) fn new(
        pipes: Pipes,
        progress: Progress,
        workspace: Workspace,
        limits: Arc<Limits>,
    ) -> Self {
        Self {
            pipes,
            stdout: Capture::new(limits.bash_preview_bytes),
            stderr: Capture::new(limits.bash_preview_bytes),
            feed: Feed::new(&limits),
            progress,
            spill: None,
            buffer: Vec::new(),
            workspace,
            limits,
        }
    }

    /// Returns whether every writer has closed the pipes.
    pub(super) fn closed(&self) -> bool {
        self.pipes.closed()
    }

    /// Does the next thing there is to do; for ever where there is nothing.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: bytes are taken without waiting, once they are there.
    pub(super) async fn step(&mut self) {
        let full = self.spill.as_ref().is_some_and(Spill::is_full);
        tokio::select! {
            () = self.feed.due(), if self.feed.armed() => self.feed.flush(&self.progress),
            () = write(self.spill.as_mut()) => {}
            stream = self.pipes.readable(), if !full => {
                self.read(stream);
            }
        }
    }

    fn read(&mut self, stream: OutputStream) -> bool {
        let chunk = self.limits.pipe_chunk_bytes;
        let got = self.pipes.read(stream, &mut self.buffer, chunk);
        if got {
            self.take(stream);
        }
        got
    }

    fn take(&mut self, stream: OutputStream) {
        let sum = self.stdout.total() + self.stderr.total() + self.buffer.len() as u64;
        if self.spill.is_none() && sum > self.limits.bash_preview_bytes as u64 {
            let mut spill = Spill::new(self.workspace.clone(), Arc::clone(&self.limits));
            spill.push(
                OutputStream::Stdout,
                self.stdout.whole().unwrap_or_default(),
            );
            spill.push(
                OutputStream::Stderr,
                self.stderr.whole().unwrap_or_default(),
            );
            self.spill = Some(spill);
        }
        if let Some(spill) = &mut self.spill {
            spill.push(stream, self.buffer.clone());
        }
        self.feed.push(stream, &self.buffer);
        match stream {
            OutputStream::Stdout => self.stdout.push(&self.buffer),
            OutputStream::Stderr => self.stderr.push(&self.buffer),
        }
    }

    /// Takes what the pipes hold at this moment, without waiting.
    pub(super) fn take_last(&mut self) {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            for _ in 0..LAST_CHUNKS {
                if !self.read(stream) {
                    break;
                }
            }
        }
    }

    /// Ends the capture: stdout, stderr, what was kept on disk, and the pipes, which may still be open.
    pub(super) async fn finish(self) -> (Capture, Capture, Option<SpillReport>, Pipes) {
        let report = match self.spill {
            Some(spill) => Some(spill.finish(&self.limits).await),
            None => None,
        };
        (self.stdout, self.stderr, report, self.pipes)
    }
}

async fn write(spill: Option<&mut Spill>) {
    match spill.filter(|spill| spill.is_busy()) {
        Some(spill) => spill.progress().await,
        None => pending().await,
    }
}
