//! One connection: a task that reads and never waits, and a task that writes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame as WireClose;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};
use tokio_util::sync::CancellationToken;

use super::link::{LastRead, Link, frame};
use crate::dispatch::{CloseFrame, Connection, Outgoing};
use crate::limits::Limits;
use crate::wire::{Encoded, Fragments};

/// Messages that a connection takes before others have their turn.
const TURN: usize = 8;

/// Close code of a side that a message is too large for (RFC 6455 section 7.4.1).
const TOO_LARGE: u16 = 1009;

type Socket<S> = WebSocketStream<Link<S>>;

/// How a connection ended.
#[derive(Debug)]
pub enum End {
    /// The peer closed it, with this code where it gave one.
    Closed(Option<u16>),
    /// This side closed it.
    ClosedHere(CloseFrame),
    /// Nothing was read for two heartbeats, or a write did not get on for as long.
    Dead,
    /// The socket failed.
    Failed(SocketError),
}

impl End {
    /// Tells a socket that the peer has closed from one that failed.
    fn of_write(error: SocketError) -> Self {
        if matches!(
            error,
            SocketError::ConnectionClosed | SocketError::AlreadyClosed
        ) {
            Self::Closed(None)
        } else {
            Self::Failed(error)
        }
    }
}

/// Serves one connection over any byte stream until it ends. The handshake has been made.
///
/// # Cancel safety
/// None: dropped, it leaves its writer behind until that fails.
pub async fn run<S>(mut socket: Socket<S>, connection: Connection, limits: &Arc<Limits>) -> End
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let last_read = socket.get_ref().last_read();
    socket.get_mut().count(Arc::clone(connection.metrics()));
    let connection = Arc::new(connection);
    let (sink, mut stream) = socket.split();
    let (peer_gone, writer_gone) = (CancellationToken::new(), CancellationToken::new());
    let writer = Writer {
        sink,
        connection: Arc::clone(&connection),
        peer_gone: peer_gone.clone(),
        limits: Arc::clone(limits),
        begun: Instant::now(),
    };
    let begun = writer.begun;
    let ended = writer_gone.clone().drop_guard();
    let writer = tokio::spawn(async move {
        let written = writer.run().await;
        drop(ended);
        written
    });
    let read_end = tokio::select! {
        biased; // What was read is acted on before an end of the writer is looked at.
        end = read(&mut stream, &connection, &last_read, begun) => Some(end),
        () = writer_gone.cancelled() => None,
    };
    let read_end = match read_end {
        // The writer says good-bye when it comes to the close in its lane.
        None | Some(End::ClosedHere(_)) => None,
        Some(end) => {
            peer_gone.cancel();
            Some(end)
        }
    };
    let (sink, write_end) = match writer.await {
        Ok(written) => written,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => return End::Dead,
    };
    if let (End::ClosedHere(_), Ok(mut socket)) = (&write_end, stream.reunite(sink)) {
        socket.get_mut().linger(limits.close_timeout).await;
    }
    read_end.unwrap_or(write_end)
}

/// Reads until the peer closes, breaks the protocol or falls silent.
async fn read<S>(
    stream: &mut SplitStream<Socket<S>>,
    connection: &Connection,
    last_read: &LastRead,
    begun: Instant,
) -> End
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let close = |code, reason: &str| {
        connection.outbox().close(code, reason);
        End::ClosedHere(CloseFrame {
            code,
            reason: reason.to_owned(),
        })
    };
    let mut taken = 0_usize;
    loop {
        // Small calls are answered right here: many of them at one time must not keep other connections waiting. Between two
        // messages only: one that was taken would be lost if this future were dropped here.
        taken += 1;
        if taken.is_multiple_of(TURN) {
            tokio::task::yield_now().await;
        }
        let silence = 2 * *connection.heartbeat().borrow();
        let message = tokio::select! {
            biased; // What has arrived is a sign of life, however late it is looked at.
            message = stream.next() => message,
            () = sleep_until(last_read.at() + silence) => {
                if last_read.at() + silence <= Instant::now() {
                    return End::Dead;
                }
                continue;
            }
        };
        match message {
            Some(Ok(Message::Text(text))) => connection.receive(&text),
            Some(Ok(Message::Binary(_))) => connection.refuse_binary(),
            Some(Ok(Message::Pong(payload))) => {
                if let Ok(after_ms) = payload.as_ref().try_into().map(u64::from_be_bytes)
                    && let Some(pinged) = begun.checked_add(Duration::from_millis(after_ms))
                {
                    connection.note_reached(pinged);
                }
            }
            Some(Ok(Message::Ping(_) | Message::Frame(_))) => {}
            Some(Ok(Message::Close(frame))) => {
                if frame.as_ref().map(|frame| u16::from(frame.code)) == Some(TOO_LARGE) {
                    connection.give_up_large();
                }
                connection.release();
                return End::Closed(frame.map(|frame| frame.code.into()));
            }
            Some(Err(SocketError::ConnectionClosed)) | None => {
                connection.release();
                return End::Closed(None);
            }
            Some(Err(SocketError::Capacity(_))) => {
                return close(TOO_LARGE, "the message is larger than this executor takes");
            }
            Some(Err(SocketError::Utf8(_))) => return close(1007, "a text message must be UTF-8"),
            Some(Err(SocketError::Protocol(error))) => return close(1002, &error.to_string()),
            Some(Err(error)) => return End::Failed(error),
        }
    }
}

struct Writer<S> {
    sink: SplitSink<Socket<S>, Message>,
    connection: Arc<Connection>,
    peer_gone: CancellationToken,
    limits: Arc<Limits>,
    begun: Instant,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Writer<S> {
    /// Writes until told to close. Gives the sink back, so that the close can be waited out.
    async fn run(mut self) -> (SplitSink<Socket<S>, Message>, End) {
        let end = self.write_all().await;
        (self.sink, end)
    }

    async fn write_all(&mut self) -> End {
        let mut heartbeat = self.connection.heartbeat();
        let connection = Arc::clone(&self.connection);
        let mut pinged = Instant::now();
        loop {
            let interval = *heartbeat.borrow_and_update();
            let next = tokio::select! {
                biased; // The end first; then a ping, which lanes that never run empty must not keep back.
                () = self.peer_gone.cancelled() => {
                    // Only a reply to the peer's close may still be there to be sent.
                    if let Ok(Err(error)) = timeout(self.limits.close_timeout, self.sink.close()).await {
                        tracing::debug!(%error, "the peer was gone before the close was answered");
                    }
                    return End::Closed(None);
                }
                Ok(()) = heartbeat.changed() => continue,
                () = sleep_until(pinged + interval) => None,
                next = connection.outbox().next() => Some(next),
            };
            let written = if let Some(next) = next {
                self.write(next, interval).await
            } else {
                pinged = Instant::now();
                self.ping(interval).await
            };
            match written {
                Ok(None) => {}
                Ok(Some(close)) => return End::ClosedHere(close),
                Err(end) => return end,
            }
        }
    }

    async fn ping(&mut self, interval: Duration) -> Result<Option<CloseFrame>, End> {
        // A ping carries its time, so that its answer tells what has reached the peer.
        let after_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let payload = bytes::Bytes::copy_from_slice(&after_ms.to_be_bytes());
        self.feed(Message::Ping(payload), interval).await?;
        self.flush(interval).await?;
        Ok(None)
    }

    /// Writes one thing and what else is there already, then flushes once.
    async fn write(
        &mut self,
        first: Outgoing,
        interval: Duration,
    ) -> Result<Option<CloseFrame>, End> {
        let mut receipts = Vec::new();
        let mut close = None;
        let mut next = Some(first);
        while let Some(outgoing) = next {
            match outgoing {
                Outgoing::Text(text) => {
                    let text = Encoded::Whole(text);
                    self.feed_text(text, interval).await?;
                }
                Outgoing::Rest(fragments, receipt) => {
                    self.feed_fragments(fragments, interval).await?;
                    receipts.push(receipt);
                }
                Outgoing::Result(message, receipt) => {
                    self.feed_text(message, interval).await?;
                    receipts.push(receipt);
                }
                Outgoing::Close(frame) => {
                    self.connection.release();
                    let (code, reason) = (frame.code.into(), frame.reason.clone().into());
                    self.feed(Message::Close(Some(WireClose { code, reason })), interval)
                        .await?;
                    close = Some(frame);
                    break;
                }
            }
            // A bounded batch, so that lanes that never run empty are flushed too.
            let room = receipts.len() < self.limits.write_batch;
            next = if room {
                self.connection.outbox().try_next()
            } else {
                None
            };
        }
        self.flush(interval).await?;
        for receipt in receipts {
            receipt.written();
        }
        Ok(close)
    }

    async fn feed_text(&mut self, message: Encoded, interval: Duration) -> Result<(), End> {
        let fragments = Fragments::of(message, self.limits.fragment_bytes);
        self.feed_fragments(fragments, interval).await
    }

    async fn feed_fragments(
        &mut self,
        mut fragments: Fragments,
        interval: Duration,
    ) -> Result<(), End> {
        while let Some(fragment) = fragments.next() {
            let is_last = fragment.is_last;
            self.feed(frame(fragment), interval).await?;
            if is_last {
                break;
            }
            // That one waits for room, and as many as then find room go along.
            self.flush(interval).await?;
            let Some(left) = self.connection.outbox().go_on(fragments) else {
                break;
            };
            fragments = left;
        }
        Ok(())
    }

    /// Hands one frame to the socket. A line that takes nothing for two heartbeats is dead.
    async fn feed(&mut self, message: Message, interval: Duration) -> Result<(), End> {
        match timeout(2 * interval, self.sink.feed(message)).await {
            Ok(fed) => fed.map_err(End::of_write),
            Err(_) => Err(End::Dead),
        }
    }

    async fn flush(&mut self, interval: Duration) -> Result<(), End> {
        match timeout(2 * interval, self.sink.flush()).await {
            Ok(flushed) => flushed.map_err(End::of_write),
            Err(_) => Err(End::Dead),
        }
    }
}
