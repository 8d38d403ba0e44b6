//! The writing side of a socket, for the connection's writer and for whoever has just finished a call.
//!
//! A result that waits for the connection's thread comes a change of thread later than it could. So the thread that
//! finished the call writes it where nobody else is writing: as far as the kernel takes it at once, and the connection's
//! writer does the rest. Frames never interleave: each writer leaves whole ones behind.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::dispatch::{Receipt, Shortcut};
use crate::metrics::Metrics;
use crate::wire::Encoded;

/// Pieces handed to the kernel at one time; Linux takes up to 1024 (`UIO_MAXIOV`).
const AT_ONE_TIME: usize = 16;

/// The writing side of one socket.
#[derive(Debug)]
pub(super) struct Line {
    /// There until the drop.
    write: Option<OwnedWriteHalf>,
    rest: Mutex<Rest>,
    fragment_bytes: usize,
    counters: Arc<Metrics>,
}

/// What the kernel has not taken yet: the ends of whole frames, and whom to tell when it has.
#[derive(Debug, Default)]
struct Rest {
    bytes: VecDeque<Bytes>,
    receipts: Vec<Receipt>,
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
    fn push(&self, rest: &mut Rest) -> io::Result<()> {
        let stream = self.stream()?;
        while !rest.bytes.is_empty() {
            let pieces = rest.bytes.iter().take(AT_ONE_TIME);
            let pieces: Vec<IoSlice<'_>> = pieces.map(|piece| IoSlice::new(piece)).collect();
            let mut written = match stream.try_write_vectored(&pieces) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            while let Some(first) = rest.bytes.front_mut() {
                if written < first.len() {
                    first.advance(written);
                    break;
                }
                written -= first.len();
                rest.bytes.pop_front();
            }
        }
        Ok(())
    }

    /// Waits until the kernel has taken everything; a look at it that would wait for another thread is made again.
    fn poll_rest(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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
            if rest.bytes.is_empty() {
                break;
            }
            ready!(self.stream()?.poll_write_ready(cx))?;
        }
        let receipts = std::mem::take(&mut rest.receipts);
        drop(rest);
        for receipt in receipts {
            receipt.written();
        }
        Poll::Ready(Ok(()))
    }

    /// Writes whole frames after what was written before, all or nothing.
    fn poll_frames(&self, cx: &mut Context<'_>, frames: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_rest(cx))?;
            let Ok(mut rest) = self.rest.try_lock() else {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            };
            if !rest.bytes.is_empty() {
                continue;
            }
            match self.stream()?.try_write(frames) {
                Ok(0) => return Poll::Ready(Ok(0)),
                Ok(written) => {
                    let left = frames.get(written..).unwrap_or_default();
                    if !left.is_empty() {
                        rest.bytes.push_back(Bytes::copy_from_slice(left));
                    }
                    return Poll::Ready(Ok(frames.len()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            drop(rest);
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
    fn send(&self, message: Encoded, receipt: Receipt) -> bool {
        let mut size = message.size();
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pieces = message.pieces(self.fragment_bytes).peekable();
        let mut kind = Data::Text;
        while let Some(piece) = pieces.next() {
            let header = FrameHeader {
                is_final: pieces.peek().is_none(),
                opcode: OpCode::Data(kind),
                ..FrameHeader::default()
            };
            let mut spelled = Vec::with_capacity(header.len(piece.len() as u64));
            if let Err(error) = header.format(piece.len() as u64, &mut spelled) {
                tracing::error!(%error, "a frame could not be spelled");
            }
            size += spelled.len();
            rest.bytes.extend([spelled.into(), piece]);
            kind = Data::Continue;
        }
        self.counters.sent_bytes.add(size as u64);
        // A socket that has failed fails its writer too, which says so.
        let failed = self.push(&mut rest).is_err();
        if failed || !rest.bytes.is_empty() {
            rest.receipts.push(receipt);
            return false;
        }
        drop(rest);
        receipt.written();
        true
    }
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
        self.line.poll_rest(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.line.poll_rest(cx))?;
        Poll::Ready(rustix::net::shutdown(self.line.stream()?, Shutdown::Write).map_err(Into::into))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::StreamExt as _;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    const MESSAGES: usize = 60;
    const PONG: &[u8] = b"\x8a\x04pong";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn frames_of_two_writers_never_interleave_however_slowly_they_are_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let counters = Arc::new(Metrics::new(1));
        let mut socket = SharedSocket::new(accepted.unwrap().0, 64 * 1024, counters);
        let line = socket.line();
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        let passing = std::thread::spawn(move || {
            for number in 0..MESSAGES {
                let tell = Arc::clone(&tell);
                let receipt = Receipt::new(move || tell.lock().unwrap().push(number));
                line.send(Encoded::Whole(text(number).into()), receipt);
                std::thread::yield_now();
            }
        });
        let (done, mut is_done) = tokio::sync::oneshot::channel::<()>();
        let writer = tokio::spawn(async move {
            let mut pongs = 0;
            loop {
                // Looked at first, so that what came before it is flushed.
                let last = !matches!(
                    is_done.try_recv(),
                    Err(tokio::sync::oneshot::error::TryRecvError::Empty)
                );
                socket.write_all(PONG).await.unwrap();
                pongs += 1;
                socket.flush().await.unwrap();
                if last {
                    return (socket, pongs);
                }
                tokio::task::yield_now().await;
            }
        });
        let mut reader =
            WebSocketStream::from_raw_socket(client.unwrap(), Role::Client, None).await;
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
        passing.join().unwrap();
        done.send(()).unwrap();
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
        assert_eq!(sent, seen);
        let told = std::mem::take(&mut *told.lock().unwrap());
        assert_eq!(
            told,
            (0..MESSAGES).collect::<Vec<_>>(),
            "each is told once, in order"
        );
    }

    fn text(number: usize) -> Vec<u8> {
        format!("{number:06}").repeat(50_000).into_bytes()
    }
}
