//! The answer to plain HTTP on the WebSocket port: one short refusal instead of a bare close.
//!
//! A person with a browser, a probe or a misdirected client learns what this port is. The library that does the
//! handshake drops the socket on such a request, so a second descriptor of it is kept until the handshake has ended.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Error as SocketError;
use tokio_tungstenite::tungstenite::error::ProtocolError;

use super::link::Link;

const SENTENCE: &str =
    "this port speaks WebSocket only (bma.executor.v1.1); a request must ask for the upgrade\n";

/// A second descriptor of a socket whose handshake goes on.
#[derive(Debug)]
pub(super) struct Spare(Option<OwnedFd>);

impl Spare {
    /// Keeps a socket open. Where descriptors have run out, a plain request is closed without an answer.
    pub(super) fn of(stream: &TcpStream) -> Self {
        Self(stream.as_fd().try_clone_to_owned().ok())
    }

    /// Answers where the handshake failed because none was asked for; returns whether that was so.
    pub(super) async fn answer(self, error: &SocketError, patience: Duration) -> bool {
        if !is_plain_http(error) {
            return false;
        }
        let Some(stream) = self.0.map(std::net::TcpStream::from) else {
            return true;
        };
        let Ok(mut stream) = TcpStream::from_std(stream) else {
            return true;
        };
        let answer = format!(
            "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n\
             Sec-WebSocket-Version: 13\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{SENTENCE}",
            SENTENCE.len()
        );
        if !matches!(
            timeout(patience, stream.write_all(answer.as_bytes())).await,
            Ok(Ok(()))
        ) {
            tracing::debug!("plain HTTP could not be answered");
            return true;
        }
        tracing::debug!("plain HTTP was answered with 426");
        Link::new(stream).linger(patience).await;
        true
    }
}

/// Whether a whole HTTP request came that does not ask for this WebSocket.
fn is_plain_http(error: &SocketError) -> bool {
    matches!(
        error,
        SocketError::Protocol(
            ProtocolError::WrongHttpMethod
                | ProtocolError::WrongHttpVersion
                | ProtocolError::MissingConnectionUpgradeHeader
                | ProtocolError::MissingUpgradeWebSocketHeader
                | ProtocolError::MissingSecWebSocketVersionHeader
                | ProtocolError::MissingSecWebSocketKey
                | ProtocolError::JunkAfterRequest
        )
    )
}
