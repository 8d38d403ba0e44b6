//! A byte stream between an executor and its harness with a valve: it delays, stalls, and is cut at any byte.
//!
//! The executor's end is an async stream, as a socket is. The harness's end never waits: the schedule looks at it when
//! it wants to. Each direction keeps account of when its bytes were taken, so that the model knows what the executor
//! has acted on.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// One direction.
#[derive(Debug)]
pub struct Pipe {
    chunks: VecDeque<(Instant, Bytes)>,
    held: usize,
    capacity: usize,
    /// How long a byte is under way.
    pub delay: Duration,
    /// Whether nothing arrives for now.
    pub stalled: bool,
    /// Whether anything was ever held back.
    pub ever_stalled: bool,
    /// All bytes that were put in.
    written: u64,
    taken: u64,
    /// How far it had been taken at which time.
    taken_at: Vec<(u64, Instant)>,
    /// The byte before which the whole line is cut.
    cut_before: Option<u64>,
    ended: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn new(capacity: usize) -> Self {
        Self {
            chunks: VecDeque::new(),
            held: 0,
            capacity,
            delay: Duration::ZERO,
            stalled: false,
            ever_stalled: false,
            written: 0,
            taken: 0,
            taken_at: Vec::new(),
            cut_before: None,
            ended: false,
            reader: None,
            writer: None,
        }
    }

    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()] {
            waker.into_iter().for_each(Waker::wake);
        }
    }

    fn lose(&mut self) {
        self.chunks.clear();
        self.held = 0;
    }

    /// Puts in what there is room for. `None` where there is none; true where the line is to be cut now.
    fn put(&mut self, bytes: &[u8]) -> Option<(usize, bool)> {
        let room = self.capacity.saturating_sub(self.held).min(bytes.len());
        let until_cut = self.cut_before.map_or(usize::MAX, |at| {
            usize::try_from(at.saturating_sub(self.written)).unwrap()
        });
        let taken = room.min(until_cut);
        if taken == 0 && until_cut > 0 {
            return None;
        }
        let ready = Instant::now() + self.delay;
        let ready = self
            .chunks
            .back()
            .map_or(ready, |(last, _)| ready.max(*last));
        if taken > 0 {
            self.chunks
                .push_back((ready, Bytes::copy_from_slice(&bytes[..taken])));
        }
        self.held += taken;
        self.written += taken as u64;
        self.wake();
        Some((taken, taken == until_cut))
    }

    /// Takes what has arrived; `Err` says when to look again, if ever.
    fn take(&mut self, most: usize) -> Result<Vec<u8>, Option<Instant>> {
        if self.stalled {
            return Err(None);
        }
        let now = Instant::now();
        let mut bytes = Vec::new();
        while bytes.len() < most {
            match self.chunks.front_mut() {
                Some((ready, chunk)) if *ready <= now || self.ended => {
                    let count = chunk.len().min(most - bytes.len());
                    bytes.extend_from_slice(&chunk.split_to(count));
                    if chunk.is_empty() {
                        self.chunks.pop_front();
                    }
                }
                Some((ready, _)) if bytes.is_empty() => return Err(Some(*ready)),
                None if bytes.is_empty() && !self.ended => return Err(None),
                _ => break,
            }
        }
        self.held -= bytes.len();
        self.taken += bytes.len() as u64;
        self.taken_at.push((self.taken, now));
        self.wake();
        Ok(bytes)
    }
}

/// Both directions.
#[derive(Debug)]
pub struct Valve {
    /// What the harness sends.
    pub to_executor: Pipe,
    /// What the executor sends.
    pub to_harness: Pipe,
}

/// A line, held by both ends and by the schedule.
#[derive(Debug, Clone)]
pub struct Line(Arc<Mutex<Valve>>);

impl Line {
    /// Lays a line; `capacity` is what the executor can send before somebody takes it.
    pub fn new(capacity: usize) -> Self {
        Self(Arc::new(Mutex::new(Valve {
            to_executor: Pipe::new(usize::MAX),
            to_harness: Pipe::new(capacity),
        })))
    }

    /// The valve, until it is let go.
    pub fn valve(&self) -> MutexGuard<'_, Valve> {
        self.0.lock().unwrap()
    }

    /// Cuts the line. What is under way is lost or still arrives.
    pub fn cut(&self, lose: bool) {
        let mut valve = self.valve();
        let Valve {
            to_executor,
            to_harness,
        } = &mut *valve;
        for pipe in [to_executor, to_harness] {
            pipe.ended = true;
            pipe.stalled = false;
            if lose {
                pipe.lose();
            }
            pipe.wake();
        }
    }

    /// The executor has died: what was under way to it is lost, what it has sent arrives.
    pub fn end_of_executor(&self) {
        let mut valve = self.valve();
        valve.to_executor.lose();
        drop(valve);
        self.cut(false);
    }

    /// Cuts the line after so many further bytes of one direction.
    pub fn cut_after(&self, to_executor: bool, bytes: u64) {
        let mut valve = self.valve();
        let pipe = if to_executor {
            &mut valve.to_executor
        } else {
            &mut valve.to_harness
        };
        pipe.cut_before = Some(pipe.written + bytes);
    }

    /// Holds back everything from now on, or lets it go on.
    pub fn stall(&self, to_executor: Option<bool>, to_harness: Option<bool>) {
        let mut valve = self.valve();
        let Valve {
            to_executor: up,
            to_harness: down,
        } = &mut *valve;
        for (pipe, stall) in [(up, to_executor), (down, to_harness)] {
            if let Some(stall) = stall {
                pipe.stalled = stall && !pipe.ended;
                pipe.ever_stalled |= stall;
                pipe.wake();
            }
        }
    }

    /// How many bytes the harness has sent.
    pub fn sent(&self) -> u64 {
        self.valve().to_executor.written
    }

    /// When the executor took the byte before `offset`, if it has.
    pub fn taken_at(&self, offset: u64) -> Option<Instant> {
        let valve = self.valve();
        let log = &valve.to_executor.taken_at;
        let at = log.partition_point(|(taken, _)| *taken < offset);
        log.get(at).map(|(_, at)| *at)
    }

    fn broken() -> io::Error {
        io::ErrorKind::ConnectionReset.into()
    }

    fn put(&self, to_executor: bool, bytes: &[u8]) -> io::Result<Option<usize>> {
        let mut valve = self.valve();
        let pipe = if to_executor {
            &mut valve.to_executor
        } else {
            &mut valve.to_harness
        };
        if pipe.ended {
            return Err(Self::broken());
        }
        let Some((taken, cut)) = pipe.put(bytes) else {
            return Ok(None);
        };
        drop(valve);
        if cut {
            self.cut(false);
        }
        // A cut at once is an error, as a byte count of zero would be.
        if taken == 0 {
            Err(Self::broken())
        } else {
            Ok(Some(taken))
        }
    }
}

/// The executor's end.
#[derive(Debug)]
pub struct ExecutorEnd {
    line: Line,
    timer: Option<Pin<Box<Sleep>>>,
}

impl ExecutorEnd {
    /// Takes the executor's end of a line.
    pub fn new(line: Line) -> Self {
        Self { line, timer: None }
    }
}

impl AsyncRead for ExecutorEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut valve = self.line.valve();
            let again = match valve.to_executor.take(buf.remaining()) {
                Ok(bytes) => {
                    buf.put_slice(&bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(again) => again,
            };
            valve.to_executor.reader = Some(cx.waker().clone());
            drop(valve);
            let Some(again) = again else {
                return Poll::Pending;
            };
            let mut timer = Box::pin(sleep_until(again));
            if timer.as_mut().poll(cx).is_pending() {
                self.timer = Some(timer);
                return Poll::Pending;
            }
        }
    }
}

impl AsyncWrite for ExecutorEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.line.put(false, bytes) {
            Ok(Some(taken)) => Poll::Ready(Ok(taken)),
            Ok(None) => {
                self.line.valve().to_harness.writer = Some(cx.waker().clone());
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut valve = self.line.valve();
        valve.to_harness.ended = true;
        valve.to_harness.wake();
        Poll::Ready(Ok(()))
    }
}

impl Drop for ExecutorEnd {
    /// A process that ends closes its sockets; what it has sent still arrives.
    fn drop(&mut self) {
        self.line.cut(false);
    }
}

/// The harness's end.
#[derive(Debug)]
pub struct HarnessEnd(pub Line);

impl io::Read for HarnessEnd {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let bytes = self
            .0
            .valve()
            .to_harness
            .take(buf.len())
            .map_err(|_later| io::ErrorKind::WouldBlock)?;
        buf[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

impl io::Write for HarnessEnd {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self
            .0
            .put(true, bytes)?
            .expect("the harness may send what it likes"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
