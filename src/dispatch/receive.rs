//! What each message of a connection does. Runs on the connection's reader, so nothing here waits.

use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::Instant;

use super::answer::Answer;
use super::{Connection, Terms};
use crate::stop::StopCause;
use crate::wire::{
    ErrorCode, PROTOCOL_VERSIONS, ProtocolError, Refusal, ToExecutor, ToolCancel, ToolResult,
    Welcome, decode,
};

/// A harness may ask for a ping interval within these.
const HEARTBEAT_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(10));

/// No answer fits into less than this, so a harness that claims less is taken at this.
const MIN_MESSAGE_BYTES: usize = 64 * 1024;

impl Connection {
    /// Acts on one text message.
    pub fn receive(&self, text: &str) {
        let decoded = decode(text);
        if decoded.is_ok() {
            self.peer.heard.set();
        }
        match decoded {
            Ok(ToExecutor::ToolCancel(cancel)) => self.cancel(&cancel),
            Ok(ToExecutor::ToolCall(call)) => self.admit(call),
            Ok(ToExecutor::Welcome(welcome)) => self.welcome(&welcome),
            Ok(ToExecutor::SessionOpen(open)) => {
                let id = open.session_id.clone();
                if let Err(refused) = self.hub.open_session(self.id, open) {
                    self.outbox().control(refused.into_protocol_error(id));
                }
            }
            Ok(ToExecutor::SessionClose(close)) => {
                let id = close.session_id.clone();
                if let Err(refused) = self.hub.close_session(self.id, close) {
                    self.outbox().control(refused.into_protocol_error(id));
                }
            }
            Ok(ToExecutor::ResultAck(ack)) => self.hub.acknowledge(self.id, &ack),
            Err(Refusal::Frame(error)) => {
                self.hub.metrics().refused(error.code);
                tracing::warn!(code = error.code.name(), "a message was refused");
                self.outbox().control(error);
            }
            Err(Refusal::Call {
                session_id,
                tool_call_id,
                message,
            }) => {
                let state = self.hub.state();
                let known = state
                    .sessions
                    .get(&session_id)
                    .is_some_and(|session| session.registry.knows(&tool_call_id));
                drop(state);
                if known {
                    self.hub.metrics().refused(ErrorCode::DuplicateCallId);
                    tracing::warn!(session = %session_id, call = %tool_call_id, "a call was refused: its id is taken");
                    // The id's own result must stay the only one.
                    self.outbox()
                        .control(super::admit::duplicate(session_id, tool_call_id));
                } else {
                    let answer = Answer::failed(ErrorCode::InvalidInput, message);
                    self.hub.note_invalid(&session_id, &tool_call_id, &answer);
                    let result = answer.into_result(session_id, tool_call_id);
                    self.outbox().control(ToolResult::from(result));
                }
            }
        }
    }

    /// Refuses a binary message; the connection lives on.
    pub fn refuse_binary(&self) {
        self.outbox().control(ProtocolError {
            code: ErrorCode::Malformed,
            message: "binary messages are not part of this protocol; send JSON as text".to_owned(),
            session_id: None,
            tool_call_id: None,
        });
    }

    fn welcome(&self, welcome: &Welcome) {
        let Some(version) = PROTOCOL_VERSIONS
            .iter()
            .find(|id| **id == welcome.protocol_version)
        else {
            let supported = PROTOCOL_VERSIONS.join(", ");
            self.outbox().control(ProtocolError {
                code: ErrorCode::UnsupportedVersion,
                message: format!("this protocol version is not served; supported are: {supported}"),
                session_id: None,
                tool_call_id: None,
            });
            self.outbox()
                .close(4406, format!("supported protocol versions: {supported}"));
            return;
        };
        let limits = &self.hub.0.limits;
        let terms = Terms {
            acks: *version == PROTOCOL_VERSIONS[0],
            max_message_bytes: welcome.max_message_bytes.map_or(
                limits.default_outbound_bytes,
                |bytes| {
                    usize::try_from(bytes.get())
                        .unwrap_or(usize::MAX)
                        .clamp(MIN_MESSAGE_BYTES, limits.max_outbound_bytes)
                },
            ),
        };
        let heartbeat = welcome.heartbeat_ms.map_or(limits.heartbeat, |ms| {
            Duration::from_millis(ms.get()).clamp(HEARTBEAT_RANGE.0, HEARTBEAT_RANGE.1)
        });
        self.peer.heartbeat.send_replace(heartbeat);
        *self
            .peer
            .terms
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = terms;
    }

    /// Acts on `tool.cancel`. One for a session that another connection holds is ignored.
    fn cancel(&self, cancel: &ToolCancel) {
        let ToolCancel {
            session_id,
            tool_call_id,
            reason: _,
        } = cancel;
        let mut state = self.hub.state();
        if let Some(session) = state.sessions.get(session_id) {
            if session.holder != Some(self.id) {
                return;
            }
            if let Some(stop) = session.registry.stop(tool_call_id) {
                stop.trigger(StopCause::Cancelled);
                return;
            }
            if session.registry.knows(tool_call_id) {
                return;
            }
        }
        state
            .early_cancels
            .add(session_id, tool_call_id, Instant::now());
    }
}
