//! What a call comes to.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Details, SessionId, Text, ToolCallId};

/// `tool.result`: the one answer to a call. A harness reads any `details`, the executor writes [`Details`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolResult<D = Value> {
    /// The call's session.
    pub session_id: SessionId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether the model should take it as an error.
    pub is_error: bool,
    /// What the model sees; never empty.
    pub content: Vec<ContentBlock>,
    /// Present exactly where `outcome` is not `succeeded`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// Structured facts for the harness, by tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<D>,
}

impl From<ToolResult<Details>> for ToolResult {
    fn from(result: ToolResult<Details>) -> Self {
        let ToolResult {
            session_id,
            tool_call_id,
            outcome,
            is_error,
            content,
            error,
            details,
        } = result;
        Self {
            session_id,
            tool_call_id,
            outcome,
            is_error,
            content,
            error,
            // Only what is no JSON could fail, such as a map whose keys are no texts.
            details: details.and_then(|details| serde_json::to_value(details).ok()),
        }
    }
}

/// How a call ended (protocol section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The tool finished, be it with a tool-level error.
    Succeeded,
    /// The call could not be run as asked.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its `deadline_ms` ended it.
    TimedOut,
    /// The daemon died while it ran.
    Unknown,
}

impl Outcome {
    /// Every outcome, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::TimedOut,
        Self::Unknown,
    ];

    /// Returns it as it is spelled on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
            Self::Unknown => "unknown",
        }
    }
}

/// A piece of what the model sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ContentBlock {
    /// Text; never empty.
    Text {
        /// The text.
        text: Text,
    },
    /// An image.
    Image {
        /// Its data.
        source: ImageSource,
    },
}

impl ContentBlock {
    /// Makes a text block.
    pub fn text(text: impl Into<Text>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// The data of an image block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ImageSource {
    /// Base64 text.
    Base64 {
        /// `image/png` and the like.
        media_type: String,
        /// The bytes, in base64 with padding.
        data: String,
    },
}

/// The code and sentence of an answer that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorBody {
    /// What to branch on.
    pub code: ErrorCode,
    /// What to show.
    pub message: String,
    /// When trying again may help, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// The closed set of codes (protocol section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The call's members or input are not as the contract asks.
    InvalidInput,
    /// There is no tool of that name.
    UnknownTool,
    /// The tool exists but is switched off here.
    ToolNotOffered,
    /// The harness or the local policy denied it.
    PermissionDenied,
    /// No slot is free.
    Overloaded,
    /// The daemon stops.
    ShuttingDown,
    /// The session was closed.
    SessionClosed,
    /// Another connection holds the session.
    SessionInUse,
    /// The call was cancelled.
    Cancelled,
    /// The call's deadline passed.
    DeadlineExceeded,
    /// The daemon died while the call ran.
    OutcomeUnknown,
    /// The result was too large to keep or to send.
    ResultTooLarge,
    /// A fault of the daemon.
    Internal,
    /// The message is not valid (only in `protocol.error`).
    Malformed,
    /// There is no such method (only in `protocol.error`).
    UnknownMethod,
    /// The id is taken by a call with another input (only in `protocol.error`).
    DuplicateCallId,
    /// The named protocol version is not served (only in `protocol.error`).
    UnsupportedVersion,
}

impl ErrorCode {
    /// Every code, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::InvalidInput,
        Self::UnknownTool,
        Self::ToolNotOffered,
        Self::PermissionDenied,
        Self::Overloaded,
        Self::ShuttingDown,
        Self::SessionClosed,
        Self::SessionInUse,
        Self::Cancelled,
        Self::DeadlineExceeded,
        Self::OutcomeUnknown,
        Self::ResultTooLarge,
        Self::Internal,
        Self::Malformed,
        Self::UnknownMethod,
        Self::DuplicateCallId,
        Self::UnsupportedVersion,
    ];

    /// Returns it as it is spelled on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidInput => "invalid_input",
            Self::UnknownTool => "unknown_tool",
            Self::ToolNotOffered => "tool_not_offered",
            Self::PermissionDenied => "permission_denied",
            Self::Overloaded => "overloaded",
            Self::ShuttingDown => "shutting_down",
            Self::SessionClosed => "session_closed",
            Self::SessionInUse => "session_in_use",
            Self::Cancelled => "cancelled",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::ResultTooLarge => "result_too_large",
            Self::Internal => "internal",
            Self::Malformed => "malformed",
            Self::UnknownMethod => "unknown_method",
            Self::DuplicateCallId => "duplicate_call_id",
            Self::UnsupportedVersion => "unsupported_version",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_those_of_the_wire() {
        for (number, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.name());
            assert_eq!(outcome as usize, number);
        }
        for (number, code) in ErrorCode::ALL.into_iter().enumerate() {
            assert_eq!(serde_json::to_value(code).unwrap(), code.name());
            assert_eq!(code as usize, number);
        }
    }
}
