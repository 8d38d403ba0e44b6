//! Both pipes of a command, read at all times, and everything that wants a share of what they carry.
//!
//! It must never stop reading for a reader of its own: only the disk throttles, and only while it is being written to.

use std::future::pending;
use std::io;
use std::sync::Arc;

use super::capture::Capture;
use super::feed::Feed;
use super::pipes::Pipes;
use super::spill::{Spill, SpillReport};
use crate::limits::Limits;
use crate::progress::Progress;
use crate::wire::OutputStream;
use crate::workspace::Workspace;

/// Pipes full that are still taken when the time for draining is over, so that a busy machine loses nothing.
const LAST_CHUNKS: usize = 16;

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

    /// Has the current runtime watch the pipes from now on.
    pub(super) fn go_along(self) -> io::Result<Self> {
        let pipes = self.pipes.go_along()?;
        Ok(Self { pipes, ..self })
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

    /// Takes all that the pipes hold, which nobody of the command's own writes to any more. However somebody else fills them, that
    /// is no more than they can hold.
    pub(super) async fn take_rest(&mut self) {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            let mut left = None;
            while left != Some(0) {
                while self.spill.as_ref().is_some_and(Spill::is_full) {
                    write(self.spill.as_mut()).await;
                }
                if !self.read(stream) {
                    break;
                }
                let held = left.unwrap_or_else(|| self.pipes.capacity(stream));
                left = Some(held.saturating_sub(self.buffer.len()));
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
