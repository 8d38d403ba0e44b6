//! Log lines on their way to stderr: nobody waits for whoever reads them.
//!
//! It must never block a caller. A pipe that is full because its reader has stopped would otherwise stop every call and
//! the orderly stop too.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Lines that wait while stderr is slow: the calls of some seconds, in a few hundred KiB. Further ones are dropped and counted.
const WAITING_LINES: usize = 1_024;

/// How long lines are gathered before they are written: a call that ends must not pay for waking the thread that writes
/// about it, and those of a busy second are few writes.
const GATHER: Duration = Duration::from_millis(5);

/// How long the end of the process waits for the last lines.
const FLUSH: Duration = Duration::from_millis(200);

enum Message {
    Line(Vec<u8>),
    /// Answered when everything before it has been written.
    Flush(SyncSender<()>),
}

/// Takes lines.
#[derive(Clone)]
pub(super) struct Lines {
    sender: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

/// Writes what still waits when it is dropped, within a bound.
#[derive(Debug)]
#[must_use = "the last lines are lost without it"]
pub struct LogGuard(SyncSender<Message>);

/// Starts the thread that writes to stderr.
pub(super) fn start() -> io::Result<(Lines, LogGuard)> {
    let (sender, receiver) = sync_channel(WAITING_LINES);
    let dropped = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&dropped);
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || write_all(&receiver, &counted))?;
    let guard = LogGuard(sender.clone());
    Ok((Lines { sender, dropped }, guard))
}

#[expect(clippy::disallowed_methods, reason = "the thread is its own")]
fn write_all(receiver: &Receiver<Message>, dropped: &AtomicU64) {
    while let Ok(first) = receiver.recv() {
        let waited_for = matches!(first, Message::Flush(_));
        if !waited_for {
            std::thread::sleep(GATHER);
        }
        let mut lines = Vec::new();
        let mut flushes = Vec::new();
        for message in std::iter::once(first).chain(receiver.try_iter().take(WAITING_LINES)) {
            match message {
                Message::Line(line) => lines.extend_from_slice(&line),
                Message::Flush(done) => flushes.push(done),
            }
        }
        // Where stderr is closed, there is nobody to tell.
        let _written = io::stderr().write_all(&lines);
        for done in flushes {
            let _heard = done.try_send(());
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(lost, "log lines were dropped: stderr was not read");
        }
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(Message::Line(line.to_vec())) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let (done, written) = sync_channel(1);
        if self.0.try_send(Message::Flush(done)).is_ok() {
            let _in_time = written.recv_timeout(FLUSH);
        }
    }
}
