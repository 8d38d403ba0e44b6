//! The other end: a small harness, for `call`, `demo` and whoever wants to drive an executor from Rust.
//!
//! It knows the wire and the socket, and nothing of the executor's rooms.

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

use crate::limits::Limits;
use crate::net::{DialError, Dialled, Target};
use crate::wire::{
    CapabilitiesUpdate, HarnessInfo, Hello, PROTOCOL_VERSIONS, ResultAck, ToExecutor, ToHarness,
    ToolCallId, ToolProgress, ToolResult, Welcome, decode_to_harness, encode,
};

/// Why an executor could not be driven.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// No connection was made.
    #[error(
        "no executor can be reached at {address}; start one with `bma-executor serve`, or look at --url and the key"
    )]
    Dial {
        /// Scheme, host and port.
        address: String,
        /// Why.
        #[source]
        source: DialError,
    },
    /// It said nothing in time.
    #[error("the executor did not say hello")]
    Silent,
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
    /// The executor would not take the message.
    #[error("the message has {0} bytes, and this executor takes at most {1}")]
    TooLarge(usize, u64),
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
    socket: Socket,
    capabilities: CapabilitiesUpdate,
    /// Largest message that the executor takes.
    max_message_bytes: u64,
}

/// What a call tells.
#[derive(Debug)]
pub enum CallEvent {
    /// It goes on.
    Progress(ToolProgress),
    /// It has ended.
    Result(ToolResult),
}

impl Harness {
    /// Connects, takes the hello and sends the welcome for v1.1.
    ///
    /// # Errors
    /// [`HarnessError`] says what to look at.
    pub async fn connect(target: &Target) -> Result<Self, HarnessError> {
        let limits = Limits::default();
        let dialled = target.dial(&limits, limits.max_outbound_bytes).await;
        let mut socket = dialled.map_err(|source| HarnessError::Dial {
            address: target.shown(),
            source,
        })?;
        let hello = timeout(limits.handshake_timeout, first_messages(&mut socket));
        let (hello, capabilities) = hello.await.unwrap_or(Err(HarnessError::Silent))?;
        let mut harness = Self {
            socket,
            capabilities,
            max_message_bytes: hello.limits.max_message_bytes,
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
        if text.len() as u64 > self.max_message_bytes {
            return Err(HarnessError::TooLarge(text.len(), self.max_message_bytes));
        }
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

type Socket = WebSocketStream<Dialled>;

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

async fn first_messages(socket: &mut Socket) -> Result<(Hello, CapabilitiesUpdate), HarnessError> {
    match (next(socket).await?, next(socket).await?) {
        (ToHarness::Hello(hello), ToHarness::CapabilitiesUpdate(update)) => Ok((hello, update)),
        _ => Err(HarnessError::Protocol(
            "it did not begin with its hello".to_owned(),
        )),
    }
}

fn socket_error(error: SocketError) -> HarnessError {
    HarnessError::Socket(Box::new(error))
}
