//! The other end: a small harness, for `call`, `demo` and whoever wants to drive an executor from Rust.
//!
//! It knows the wire and the socket, and nothing of the executor's rooms.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::{HeaderValue, Uri, header};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::limits::Limits;
use crate::net::{Link, socket_config};
use crate::wire::{
    CapabilitiesUpdate, HarnessInfo, PROTOCOL_VERSIONS, ResultAck, ToExecutor, ToHarness,
    ToolCallId, ToolProgress, ToolResult, Welcome, decode_to_harness, encode,
};

/// Where an executor listens and how to get in.
#[derive(Clone)]
pub struct Target {
    /// `ws://host:port`.
    pub url: String,
    /// The bearer key, where one is asked for.
    pub key: Option<String>,
    /// Whether an address other than loopback may be dialled without TLS.
    pub allow_plaintext: bool,
}

impl std::fmt::Debug for Target {
    /// Leaves the key out, so that it cannot reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// Why an executor could not be driven.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// The URL cannot be used.
    #[error("the URL cannot be used: {0}")]
    Url(String),
    /// Nobody listens, or not in time.
    #[error("no executor answers at {address}; start one with `bma-executor serve`")]
    Dial {
        /// Host and port.
        address: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The handshake was refused.
    #[error("the executor refused the connection with HTTP status {status}: {reason}")]
    Refused {
        /// The status.
        status: u16,
        /// What its body says.
        reason: String,
    },
    /// The socket failed.
    #[error("the connection failed")]
    Socket(#[source] Box<SocketError>),
    /// The executor closed the connection.
    #[error("the executor closed the connection (code {code}: {reason})")]
    Closed {
        /// The close code; 1006 where there was none.
        code: u16,
        /// Its reason.
        reason: String,
    },
    /// The executor refused a message.
    #[error("the executor refused the message: {0}")]
    Refusal(String),
    /// What came is not a message of the protocol.
    #[error("the executor sent a message that is not of this protocol: {0}")]
    Protocol(String),
}

/// A connection to an executor, past its hello.
#[derive(Debug)]
pub struct Harness {
    socket: WebSocketStream<Link<TcpStream>>,
    capabilities: CapabilitiesUpdate,
}

/// What a call tells.
#[derive(Debug)]
pub enum CallEvent {
    /// It goes on.
    Progress(ToolProgress),
    /// It has ended.
    Result(ToolResult),
}

/// Longest wait for the connection and for the hello.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Harness {
    /// Connects, takes the hello and sends the welcome for v1.1.
    ///
    /// # Errors
    /// [`HarnessError`] says what to look at.
    pub async fn connect(target: &Target) -> Result<Self, HarnessError> {
        let address = address(target)?;
        let dial_failed = |source| HarnessError::Dial {
            address: address.clone(),
            source,
        };
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(&*address))
            .await
            .map_err(|elapsed| dial_failed(elapsed.into()))?
            .map_err(dial_failed)?;
        stream.set_nodelay(true).map_err(dial_failed)?;
        let local = stream.peer_addr().map_err(dial_failed)?.ip().is_loopback();
        if !local && !target.allow_plaintext {
            return Err(HarnessError::Url(
                "ws:// to an address other than loopback would show the key to the network; use --allow-plaintext where the network is trusted".to_owned(),
            ));
        }
        let limits = Limits::default();
        let mut request = target
            .url
            .as_str()
            .into_client_request()
            .map_err(socket_error)?;
        request.headers_mut().insert(
            header::SEC_WEBSOCKET_PROTOCOL,
            HeaderValue::from_static("bma.executor.v1.1, bma.executor.v1"),
        );
        if let Some(key) = &target.key {
            let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_invalid| {
                HarnessError::Url("the key holds characters that a header cannot carry".to_owned())
            })?;
            value.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let config = socket_config(&limits, limits.max_outbound_bytes);
        let handshake = client_async_with_config(request, Link::new(stream), Some(config));
        let (mut socket, _response) = timeout(CONNECT_TIMEOUT, handshake)
            .await
            .map_err(|elapsed| dial_failed(elapsed.into()))?
            .map_err(socket_error)?;
        let hello = timeout(CONNECT_TIMEOUT, first_messages(&mut socket));
        let capabilities = hello
            .await
            .map_err(|elapsed| dial_failed(elapsed.into()))??;
        let mut harness = Self {
            socket,
            capabilities,
        };
        harness.send(&welcome(&limits).into()).await?;
        Ok(harness)
    }

    /// Returns what the executor offered when the connection was made.
    pub fn capabilities(&self) -> &CapabilitiesUpdate {
        &self.capabilities
    }

    /// Sends one message.
    ///
    /// # Errors
    /// The socket failed.
    pub async fn send(&mut self, message: &ToExecutor) -> Result<(), HarnessError> {
        let text = encode(message).map_err(|error| HarnessError::Protocol(error.to_string()))?;
        self.socket
            .send(Message::text(text))
            .await
            .map_err(socket_error)
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// The socket failed or was closed, or what came is not of the protocol.
    ///
    /// # Cancel safety
    /// No message is lost where the future is dropped.
    pub async fn next(&mut self) -> Result<ToHarness, HarnessError> {
        next(&mut self.socket).await
    }

    /// Waits for what comes next of one call; its result is acknowledged. Messages of other calls are passed over.
    ///
    /// # Errors
    /// As [`Harness::next`]; a `protocol.error` about this call, or about no call, is one too.
    pub async fn next_of(&mut self, call: &ToolCallId) -> Result<CallEvent, HarnessError> {
        loop {
            match self.next().await? {
                ToHarness::ToolResult(result) if result.tool_call_id == *call => {
                    let (session_id, tool_call_id) = (result.session_id.clone(), call.clone());
                    self.send(
                        &ResultAck {
                            session_id,
                            tool_call_id,
                        }
                        .into(),
                    )
                    .await?;
                    return Ok(CallEvent::Result(result));
                }
                ToHarness::ToolProgress(progress) if progress.tool_call_id == *call => {
                    return Ok(CallEvent::Progress(progress));
                }
                ToHarness::ProtocolError(error)
                    if error.tool_call_id.as_ref().is_none_or(|id| id == call) =>
                {
                    return Err(HarnessError::Refusal(error.message));
                }
                ToHarness::Hello(_)
                | ToHarness::CapabilitiesUpdate(_)
                | ToHarness::Drain(_)
                | ToHarness::SessionOpened(_)
                | ToHarness::SessionClosed(_)
                | ToHarness::ProtocolError(_)
                | ToHarness::ToolProgress(_)
                | ToHarness::ToolResult(_) => {}
            }
        }
    }

    /// Says good-bye.
    ///
    /// # Errors
    /// The socket failed.
    pub async fn close(mut self) -> Result<(), HarnessError> {
        self.socket.close(None).await.map_err(socket_error)
    }
}

fn welcome(limits: &Limits) -> Welcome {
    Welcome {
        protocol_version: PROTOCOL_VERSIONS[0].to_owned(),
        harness: Some(HarnessInfo {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }),
        heartbeat_ms: None,
        max_message_bytes: std::num::NonZeroU64::new(limits.max_outbound_bytes as u64),
    }
}

type Socket = WebSocketStream<Link<TcpStream>>;

async fn next(socket: &mut Socket) -> Result<ToHarness, HarnessError> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => {
                return decode_to_harness(&text).map_err(HarnessError::Protocol);
            }
            Some(Ok(Message::Close(frame))) => {
                let (code, reason) = frame.map_or((1005, String::new()), |frame| {
                    (frame.code.into(), frame.reason.as_str().to_owned())
                });
                return Err(HarnessError::Closed { code, reason });
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Ok(Message::Binary(_))) => {
                return Err(HarnessError::Protocol("a binary message".to_owned()));
            }
            Some(Err(error)) => return Err(socket_error(error)),
            None => {
                let reason = "without a close frame".to_owned();
                return Err(HarnessError::Closed { code: 1006, reason });
            }
        }
    }
}

async fn first_messages(socket: &mut Socket) -> Result<CapabilitiesUpdate, HarnessError> {
    match (next(socket).await?, next(socket).await?) {
        (ToHarness::Hello(_), ToHarness::CapabilitiesUpdate(update)) => Ok(update),
        _ => Err(HarnessError::Protocol(
            "it did not begin with its hello".to_owned(),
        )),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the list is the library's, open, and none of the others needs words of its own"
)]
fn socket_error(error: SocketError) -> HarnessError {
    match error {
        SocketError::Http(response) => HarnessError::Refused {
            status: response.status().as_u16(),
            reason: response
                .into_body()
                .map(|body| String::from_utf8_lossy(&body).trim().to_owned())
                .unwrap_or_default(),
        },
        other => HarnessError::Socket(Box::new(other)),
    }
}

/// Returns host and port of a `ws://` URL.
fn address(target: &Target) -> Result<String, HarnessError> {
    let uri: Uri = target
        .url
        .parse()
        .map_err(|error| HarnessError::Url(format!("{error}")))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("ws"), Some(host)) => Ok(format!("{host}:{}", uri.port_u16().unwrap_or(80))),
        (Some("wss"), _) => Err(HarnessError::Url(
            "wss:// is not built into this version".to_owned(),
        )),
        _ => Err(HarnessError::Url(
            "it must be of the form ws://host:port".to_owned(),
        )),
    }
}
