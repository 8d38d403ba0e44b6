//! Command output as progress: coalesced, bounded, and dropped rather than waited for.
//!
//! It must never hold more than one message for each stream.

use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::capture::{complete, continuations};
use crate::limits::Limits;
use crate::progress::Progress;
use crate::wire::OutputStream;

/// The progress of one command.
#[derive(Debug)]
pub(super) struct Feed {
    stdout: Pending,
    stderr: Pending,
    interval: Duration,
    max: usize,
    /// Made with the first output and set anew for each message.
    timer: Option<Pin<Box<Sleep>>>,
    armed: bool,
}

#[derive(Debug, Default)]
struct Pending {
    text: Vec<u8>,
    /// Bytes left out before `text`, and after it.
    dropped_before: u64,
    dropped_after: u64,
}

impl Feed {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            stdout: Pending::default(),
            stderr: Pending::default(),
            interval: limits.progress_interval,
            max: limits.progress_bytes,
            timer: None,
            armed: false,
        }
    }

    /// Takes output; a command shorter than one interval tells nothing before its result.
    pub(super) fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        if !self.armed {
            self.armed = true;
            let due = Instant::now() + self.interval;
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(due),
                timer @ None => *timer = Some(Box::pin(sleep_until(due))),
            }
        }
        let pending = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        // After a gap nothing more is taken, so that each message is of one piece.
        let room = if pending.dropped_after == 0 {
            self.max.saturating_sub(pending.text.len())
        } else {
            0
        };
        let (taken, dropped) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        pending.text.extend_from_slice(taken);
        pending.dropped_after += dropped.len() as u64;
    }

    /// Returns whether a message waits for its time.
    pub(super) fn armed(&self) -> bool {
        self.armed
    }

    /// Waits for the time of the next message; for ever where there was none yet.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn due(&mut self) {
        match &mut self.timer {
            Some(timer) => timer.as_mut().await,
            None => pending().await,
        }
    }

    /// Offers what has gathered.
    pub(super) fn flush(&mut self, progress: &Progress) {
        self.armed = false;
        for (stream, pending) in [
            (OutputStream::Stdout, &mut self.stdout),
            (OutputStream::Stderr, &mut self.stderr),
        ] {
            let gap = pending.dropped_after > 0;
            // The rest of a torn character comes with the next message, unless it was dropped.
            let end = complete(&pending.text);
            let torn = pending.text.split_off(end);
            let mut text = std::mem::take(&mut pending.text);
            let mut before = std::mem::take(&mut pending.dropped_before);
            if before > 0 {
                // The gap may have ended inside a character.
                let inside = continuations(&text);
                text.drain(..inside);
                before += inside as u64;
            }
            if gap {
                pending.dropped_before =
                    std::mem::take(&mut pending.dropped_after) + torn.len() as u64;
            } else {
                pending.text = torn;
            }
            if text.is_empty() {
                pending.dropped_before += before;
            } else {
                progress.output(stream, String::from_utf8_lossy(&text).into_owned(), before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::progress::ProgressSink;

    #[derive(Default)]
    struct Heard(Mutex<Vec<(String, u64)>>);

    impl ProgressSink for Heard {
        fn offer(&self, _: Option<OutputStream>, message: String, dropped: u64) {
            self.0.lock().unwrap().push((message, dropped));
        }
    }

    #[tokio::test]
    async fn messages_are_bounded_whole_and_count_what_they_leave_out() {
        let limits = Limits {
            progress_bytes: 8,
            ..Limits::default()
        };
        let heard = Arc::new(Heard::default());
        let progress = Progress::new(Arc::<Heard>::clone(&heard));
        let mut feed = Feed::new(&limits);
        feed.push(OutputStream::Stdout, "x—y\u{2014}z".as_bytes());
        feed.push(OutputStream::Stdout, b"gone");
        feed.flush(&progress);
        feed.push(OutputStream::Stdout, b"next\xe2");
        feed.flush(&progress);
        feed.push(OutputStream::Stdout, b"\x80\x94");
        feed.flush(&progress);
        let heard = heard.0.lock().unwrap();
        let expected =
            [("x—y—", 0), ("next", 5), ("—", 0)].map(|(text, dropped)| (text.to_owned(), dropped));
        assert_eq!(*heard, expected);
        let shown: usize = heard.iter().map(|(text, _)| text.len()).sum();
        assert_eq!(shown + 5, "x—y—zgonenext—".len());
    }
}
