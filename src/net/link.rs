//! A WebSocket over any byte stream, with this project's limits; used by both ends.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{Frame, FrameHeader};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::wire::Fragment;

/// What a WebSocket may fail with.
pub type LinkError = SocketError;

/// Returns the socket settings for a side that takes messages of at most `max_message` bytes.
///
/// The library's own defaults leave the write buffer unbounded and refuse frames above 16 MiB.
pub fn socket_config(limits: &Limits, max_message: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(limits.socket_read_bytes)
        .write_buffer_size(limits.socket_buffer_bytes)
        .max_write_buffer_size(limits.socket_buffer_bytes + 2 * limits.fragment_bytes)
        .max_message_size(Some(max_message))
        .max_frame_size(Some(max_message))
}

/// Makes the header of the frame of a fragment of a text message, for a side that does not mask.
pub(super) fn header(fragment: &Fragment) -> FrameHeader {
    let kind = if fragment.is_first {
        Data::Text
    } else {
        Data::Continue
    };
    FrameHeader {
        is_final: fragment.is_last,
        opcode: OpCode::Data(kind),
        ..FrameHeader::default()
    }
}

/// Makes the frame of a fragment of a text message.
pub(super) fn frame(fragment: Fragment) -> Message {
    let header = header(&fragment);
    Message::Frame(Frame::from_payload(header, fragment.bytes))
}

/// When a byte was last read from a stream.
///
/// Any byte is a sign of life: a message of many megabytes on a slow line is one long before it is whole.
#[derive(Debug, Clone)]
pub(super) struct LastRead {
    start: Instant,
    after_ms: Arc<AtomicU64>,
}

impl LastRead {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            after_ms: Arc::default(),
        }
    }

    fn touch(&self) {
        let ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.after_ms.store(ms, Ordering::Relaxed);
    }

    /// Returns the time of the last byte.
    pub(super) fn at(&self) -> Instant {
        self.start + Duration::from_millis(self.after_ms.load(Ordering::Relaxed))
    }
}

/// A byte stream that notes when it was last read from.
#[derive(Debug)]
pub struct Link<S> {
    stream: S,
    last_read: LastRead,
    /// Counts the bytes of a daemon's connection.
    counters: Option<Arc<Metrics>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Link<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            last_read: LastRead::new(),
            counters: None,
        }
    }

    /// Returns the stream.
    pub(super) fn stream(&self) -> &S {
        &self.stream
    }

    /// Counts what is read and written from now on.
    pub(super) fn count(&mut self, counters: Arc<Metrics>) {
        self.counters = Some(counters);
    }

    pub(super) fn last_read(&self) -> LastRead {
        self.last_read.clone()
    }

    /// Ends the stream so that the peer still gets what was written.
    ///
    /// A socket closed with unread bytes in it is reset, and the reset overtakes the close frame. So the rest is read
    /// and thrown away, for at most `patience`.
    pub(super) async fn linger(&mut self, patience: Duration) {
        let ended = async {
            self.stream.shutdown().await?;
            let mut waste = vec![0; 64 * 1024];
            while self.stream.read(&mut waste).await? > 0 {}
            Ok::<_, std::io::Error>(())
        };
        if let Ok(Err(error)) = tokio::time::timeout(patience, ended).await {
            tracing::debug!(%error, "the peer was gone before the close");
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Link<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.last_read.touch();
        if let Some(counters) = &self.counters {
            let read = buf.filled().len().saturating_sub(before);
            counters.received_bytes.add(read as u64);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Link<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        if let Some(counters) = &self.counters {
            counters.sent_bytes.add(written as u64);
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
