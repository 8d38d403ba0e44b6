//! The writing side of a socket, for the connection's writer and for whoever has just finished a call.
//!
//! A result that waits for the connection's thread comes a change of thread later than it could. So the thread that
//! finished the call writes it where nobody else is writing: as far as the kernel takes it at once, and the connection's
//! writer does the rest, fragment by fragment. Frames never interleave: each writer leaves whole ones behind, of which
//! no more than one waits here.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::link::header;
use crate::dispatch::Shortcut;
use crate::metrics::Metrics;
use crate::wire::{Encoded, Fragment, Fragments};

/// Pieces handed to the kernel at one time; Linux takes up to 1024 (`UIO_MAXIOV`).
const AT_ONE_TIME: usize = 64;

/// Frames of one message handed to the kernel at one time: each hand-over wakes the other end, and 16 MiB in sixty-four of them take
/// half as long again as in a few (measured). Of what the kernel does not take only a frame that was begun waits.
const FRAMES: usize = AT_ONE_TIME / 2;

/// The writing side of one socket.
#[derive(Debug)]
pub(super) struct Line {
    /// There until the drop.
    write: Option<OwnedWriteHalf>,
    /// What the kernel has not taken yet of the last whole frames.
    rest: Mutex<VecDeque<Bytes>>,
    fragment_bytes: usize,
    counters: Arc<Metrics>,
}

/// Both sides of a socket whose writing side is shared.
#[derive(Debug)]
pub(super) struct SharedSocket {
    read: OwnedReadHalf,
    line: Arc<Line>,
}

impl SharedSocket {
    /// Takes a socket apart. Messages that pass the connection's writer by are counted and cut like others.
    pub(super) fn new(stream: TcpStream, fragment_bytes: usize, counters: Arc<Metrics>) -> Self {
        let (read, write) = stream.into_split();
        let line = Line {
            write: Some(write),
            rest: Mutex::default(),
            fragment_bytes,
            counters,
        };
        Self {
            read,
            line: Arc::new(line),
        }
    }

    /// Returns its writing side.
    pub(super) fn line(&self) -> Arc<Line> {
        Arc::clone(&self.line)
    }
}

impl Line {
    fn stream(&self) -> io::Result<&TcpStream> {
        let write = self.write.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        Ok(write.as_ref())
    }

    /// Writes what the kernel takes without waiting.
    fn push(&self, rest: &mut VecDeque<Bytes>) -> io::Result<()> {
        let stream = self.stream()?;
        while !rest.is_empty() {
            let pieces = rest.iter().take(AT_ONE_TIME);
            let pieces: Vec<IoSlice<'_>> = pieces.map(|piece| IoSlice::new(piece)).collect();
            let mut written = match stream.try_write_vectored(&pieces) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            while let Some(first) = rest.front_mut() {
                if written < first.len() {
                    first.advance(written);
                    break;
                }
                written -= first.len();
                rest.pop_front();
            }
        }
        Ok(())
    }

    /// Waits until the kernel has taken everything, and keeps others from adding to it meanwhile; a look at it that would
    /// wait for another thread is made again.
    fn poll_free(&self, cx: &mut Context<'_>) -> Poll<io::Result<MutexGuard<'_, VecDeque<Bytes>>>> {
        let mut rest = match self.rest.try_lock() {
            Ok(rest) => rest,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        };
        loop {
            self.push(&mut rest)?;
            if rest.is_empty() {
                return Poll::Ready(Ok(rest));
            }
            ready!(self.stream()?.poll_write_ready(cx))?;
        }
    }

    /// Writes whole frames after what was written before, all or nothing.
    fn poll_frames(&self, cx: &mut Context<'_>, frames: &[u8]) -> Poll<io::Result<usize>> {
        let mut rest = ready!(self.poll_free(cx))?;
        loop {
            match self.stream()?.try_write(frames) {
                Ok(0) => return Poll::Ready(Ok(0)),
                Ok(written) => {
                    let left = frames.get(written..).unwrap_or_default();
                    if !left.is_empty() {
                        rest.push_back(Bytes::copy_from_slice(left));
                    }
                    return Poll::Ready(Ok(frames.len()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            ready!(self.stream()?.poll_write_ready(cx))?;
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // The half alone would shut the socket down, and who asked for no WebSocket still gets an answer on it.
        if let Some(write) = self.write.take() {
            write.forget();
        }
    }
}

impl Shortcut for Line {
    fn send(&self, message: Encoded) -> Option<Fragments> {
        self.go_on(Fragments::of(message, self.fragment_bytes))
    }

    fn go_on(&self, mut fragments: Fragments) -> Option<Fragments> {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        // A socket that has failed fails its writer too, which says so.
        if self.push(&mut rest).is_err() || !rest.is_empty() {
            return Some(fragments);
        }
        loop {
            let frames: Vec<[Bytes; 2]> = fragments.clone().take(FRAMES).map(spelled).collect();
            if frames.is_empty() {
                return None;
            }
            let pieces: Vec<_> = frames.iter().flatten().map(|it| IoSlice::new(it)).collect();
            let stream = self.stream();
            let mut written = stream
                .and_then(|stream| stream.try_write_vectored(&pieces))
                .unwrap_or(0);
            for [header, bytes] in frames {
                if written == 0 {
                    return Some(fragments);
                }
                fragments.next();
                for mut piece in [header, bytes] {
                    self.counters.sent_bytes.add(piece.len() as u64);
                    let taken = written.min(piece.len());
                    written -= taken;
                    piece.advance(taken);
                    rest.extend((!piece.is_empty()).then_some(piece));
                }
                if !rest.is_empty() {
                    return Some(fragments);
                }
            }
        }
    }
}

/// Spells a fragment's header; what it holds stays where it is.
fn spelled(fragment: Fragment) -> [Bytes; 2] {
    let header = header(&fragment);
    let len = fragment.bytes.len() as u64;
    let mut spelled = Vec::with_capacity(header.len(len));
    if let Err(error) = header.format(len, &mut spelled) {
        tracing::error!(%error, "a frame could not be spelled");
    }
    [spelled.into(), fragment.bytes]
}

impl AsyncRead for SharedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(cx, buf)
    }
}

impl AsyncWrite for SharedSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.line.poll_frames(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.line.poll_free(cx).map_ok(drop)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        drop(ready!(self.line.poll_free(cx))?);
        Poll::Ready(rustix::net::shutdown(self.line.stream()?, Shutdown::Write).map_err(Into::into))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::StreamExt as _;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc::error::TryRecvError;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    const MESSAGES: usize = 60;
    const PONG: &[u8] = b"\x8a\x04pong";

    async fn connect() -> (TcpStream, SharedSocket) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let counters = Arc::new(Metrics::new(1));
        let socket = SharedSocket::new(accepted.unwrap().0, 64 * 1024, counters);
        (client.unwrap(), socket)
    }

    #[tokio::test]
    async fn of_a_message_that_nobody_reads_one_frame_waits_and_the_rest_is_given_back() {
        let (_client, socket) = connect().await;
        let message = Encoded::Whole(vec![b'x'; 64 << 20].into());
        let left = socket.line().send(message).unwrap();
        let waits: usize = socket
            .line()
            .rest
            .lock()
            .unwrap()
            .iter()
            .map(Bytes::len)
            .sum();
        assert!(waits <= 64 * 1024 + 14, "{waits}");
        let left: Vec<_> = left.collect();
        assert!(left.len() > 500, "{}", left.len());
        // Of frames of one size each was begun or is given back.
        let begun = socket.line().counters.sent_bytes.get() / (64 * 1024);
        assert_eq!(begun + left.len() as u64, 1024);
        assert!(left.iter().all(|fragment| !fragment.is_first));
        assert_eq!(left.iter().filter(|fragment| fragment.is_last).count(), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn frames_of_two_writers_never_interleave_however_slowly_they_are_read() {
        let (client, mut socket) = connect().await;
        let line = socket.line();
        let (give_back, mut leftovers) = tokio::sync::mpsc::channel(1);
        let (go_on, gone_on) = std::sync::mpsc::channel();
        let passing = std::thread::spawn(move || {
            for number in 0..MESSAGES {
                if let Some(left) = line.send(Encoded::Whole(text(number).into())) {
                    give_back.blocking_send(left).unwrap();
                    gone_on.recv().unwrap();
                }
                std::thread::yield_now();
            }
        });
        let writer = tokio::spawn(async move {
            let mut pongs = 0;
            loop {
                let left = match leftovers.try_recv() {
                    Ok(left) => Some(left),
                    Err(TryRecvError::Empty) => None,
                    Err(TryRecvError::Disconnected) => return (socket, pongs),
                };
                let was_given = left.is_some();
                for fragment in left.into_iter().flatten() {
                    let mut frame = Vec::new();
                    header(&fragment)
                        .format(fragment.bytes.len() as u64, &mut frame)
                        .unwrap();
                    frame.extend_from_slice(&fragment.bytes);
                    socket.write_all(&frame).await.unwrap();
                    socket.write_all(PONG).await.unwrap();
                    pongs += 1;
                }
                socket.write_all(PONG).await.unwrap();
                pongs += 1;
                socket.flush().await.unwrap();
                if was_given {
                    go_on.send(()).unwrap();
                }
                tokio::task::yield_now().await;
            }
        });
        let mut reader = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        let mut pongs = 0;
        let mut texts = 0;
        while texts < MESSAGES {
            let message = reader.next().await.unwrap().unwrap();
            if let Message::Text(got) = message {
                assert!(got.as_bytes() == text(texts), "message {texts} is damaged");
                texts += 1;
                // So that the kernel's buffers fill.
                tokio::time::sleep(Duration::from_millis(2)).await;
            } else {
                assert_eq!(message, Message::Pong("pong".into()));
                pongs += 1;
            }
        }
        let rest = async {
            while let Some(Ok(Message::Pong(_))) = reader.next().await {
                pongs += 1;
            }
            pongs
        };
        let ended = async {
            let (socket, sent) = writer.await.unwrap();
            drop(socket);
            sent
        };
        let (sent, seen) = tokio::join!(ended, rest);
        passing.join().unwrap();
        assert_eq!(sent, seen);
    }

    fn text(number: usize) -> Vec<u8> {
        format!("{number:06}").repeat(50_000).into_bytes()
    }
}
