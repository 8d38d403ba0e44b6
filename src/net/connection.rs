//! One connection: a task that reads and never waits, and a task that writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame as WireClose;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};
use tokio_util::sync::CancellationToken;

use super::link::{LastRead, Link, fragments};
use crate::dispatch::{CloseFrame, Connection, Outgoing};
use crate::limits::Limits;

type Socket<S> = WebSocketStream<Link<S>>;

/// How a connection ended.
#[derive(Debug)]
pub(super) enum End {
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

/// Serves one connection until it ends.
pub(super) async fn run<S>(
    mut socket: Socket<S>,
    connection: Connection,
    limits: &Arc<Limits>,
) -> End
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
    };
    let ended = writer_gone.clone().drop_guard();
    let writer = tokio::spawn(async move {
        let written = writer.run().await;
        drop(ended);
        written
    });
    let read_end = tokio::select! {
        biased; // What was read is acted on before an end of the writer is looked at.
        end = read(&mut stream, &connection, &last_read) => Some(end),
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
    loop {
        let silence = 2 * *connection.heartbeat().borrow();
        let message = tokio::select! {
            message = stream.next() => message,
            () = sleep_until((last_read.at() + silence).into()) => {
                if last_read.at() + silence <= Instant::now() {
                    return End::Dead;
                }
                continue;
            }
        };
        match message {
            Some(Ok(Message::Text(text))) => connection.receive(&text),
            Some(Ok(Message::Binary(_))) => connection.refuse_binary(),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Ok(Message::Close(frame))) => {
                connection.release();
                return End::Closed(frame.map(|frame| frame.code.into()));
            }
            Some(Err(SocketError::ConnectionClosed)) | None => {
                connection.release();
                return End::Closed(None);
            }
            Some(Err(SocketError::Capacity(_))) => {
                return close(1009, "the message is larger than this executor takes");
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
                () = sleep_until((pinged + interval).into()) => None,
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
        self.feed(Message::Ping(bytes::Bytes::new()), interval)
            .await?;
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
                Outgoing::Text(text) => self.feed_text(text, interval).await?,
                Outgoing::Result(text, receipt) => {
                    self.feed_text(text, interval).await?;
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

    async fn feed_text(&mut self, text: bytes::Bytes, interval: Duration) -> Result<(), End> {
        for message in fragments(text, self.limits.fragment_bytes) {
            self.feed(message, interval).await?;
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
