//! Text to message and back; the only place that knows the envelope.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::ToExecutor;
use super::frame::Message;
use super::inputs::describe;
use super::salvage::{Member, salvage};
use super::strict::Strict;
use super::{ErrorCode, ProtocolError, SessionId, ToHarness, ToolCallId};

/// Why a message could not be taken, and what it must be answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A call whose ids could be read: answer with a failed `tool.result`.
    Call {
        /// The session.
        session_id: SessionId,
        /// The call.
        tool_call_id: ToolCallId,
        /// What is wrong.
        message: String,
    },
    /// Anything else: answer with `protocol.error`.
    Frame(ProtocolError),
}

/// Longest part of a peer's own text that an answer repeats.
const QUOTED_CHARS: usize = 64;

/// Types a message from a harness.
///
/// # Errors
/// [`Refusal`] says how to answer a message that is not valid.
pub fn decode(text: &str) -> Result<ToExecutor, Refusal> {
    decode_message(text).map_err(|(code, message)| refuse(text, code, message))
}

/// Types a message from an executor.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn decode_to_harness(text: &str) -> Result<ToHarness, String> {
    decode_message(text).map_err(|(_, message)| message)
}

type Fault = (ErrorCode, String);

fn malformed(message: impl Into<String>) -> Fault {
    (ErrorCode::Malformed, message.into())
}

fn decode_message<M: Message>(text: &str) -> Result<M, Fault> {
    let (method, params) = take_apart(text)?;
    let is_object = params.is_object();
    match M::from_params(&method, params) {
        // Asked first: a struct would also be taken from an array.
        Some(_) if !is_object => Err(malformed(format!(
            "`params` of `{method}` must be an object"
        ))),
        Some(Ok(message)) => Ok(message),
        Some(Err(error)) => {
            let (_, params) = take_apart(text)?;
            let fault = M::fault(&method, params);
            let what = fault.map_or_else(|| error.to_string(), |fault| describe(&fault));
            // Without its ids a message cannot be answered in their name, so that is a fault of the frame.
            let code = if what.contains("session_id`") || what.contains("tool_call_id`") {
                ErrorCode::Malformed
            } else {
                ErrorCode::InvalidInput
            };
            Err((code, format!("`{method}`: {}", clip(&what, 400))))
        }
        None => Err((
            ErrorCode::UnknownMethod,
            format!(
                "`{}` is not a method of this protocol",
                clip(&method, QUOTED_CHARS)
            ),
        )),
    }
}

/// Takes method and `params` out of a message.
fn take_apart(text: &str) -> Result<(String, Value), Fault> {
    let Strict(value) = serde_json::from_str(text)
        .map_err(|error| malformed(format!("the message is not valid JSON: {error}")))?;
    let Value::Object(mut envelope) = value else {
        return Err(malformed(
            "a message is a JSON object with `method` and `params`",
        ));
    };
    let method = match envelope.remove("method") {
        Some(Value::String(method)) => method,
        Some(_) => return Err(malformed("`method` must be a text")),
        None => return Err(malformed("the message has no `method`")),
    };
    let params = envelope.remove("params").unwrap_or(Value::Null);
    Ok((method, params))
}

/// Decides how a message that failed to decode is answered.
fn refuse(text: &str, code: ErrorCode, message: String) -> Refusal {
    let found = salvage(text);
    let is_call = matches!(&found.method, Member::Read(method) if method == "tool.call");
    let id_at_fault = matches!(found.tool_call_id, Member::Useless | Member::Absent);
    match (is_call, found.session_id.read(), found.tool_call_id.read()) {
        (true, Some(session_id), Some(tool_call_id)) => Refusal::Call {
            session_id,
            tool_call_id,
            message,
        },
        (is_call, session_id, tool_call_id) => {
            let message = match (is_call, id_at_fault) {
                (true, true) => format!(
                    "{message} (`tool_call_id` cannot be read, so no `tool.result` can answer this call)"
                ),
                (true, false) => format!(
                    "{message} (`session_id` cannot be read, so no `tool.result` can answer this call)"
                ),
                (false, _) => message,
            };
            Refusal::Frame(ProtocolError {
                code,
                message,
                session_id,
                tool_call_id,
            })
        }
    }
}

fn clip(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Types a JSON object in which no member is given twice.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn decode_object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Strict(Value::Object(members))) => Ok(members),
        Ok(Strict(_)) => Err("it is no JSON object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Spells a message.
///
/// # Errors
/// None for the types of this room, whose map keys are all strings.
pub fn encode<M: Message>(message: &M) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Envelope {
        method: message.method(),
        params: &Params(message),
    })
}

struct Envelope<'a, P> {
    method: &'static str,
    params: &'a P,
}

impl<P: Serialize> Serialize for Envelope<'_, P> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut envelope = serializer.serialize_struct("Envelope", 3)?;
        envelope.serialize_field("jsonrpc", "2.0")?;
        envelope.serialize_field("method", self.method)?;
        envelope.serialize_field("params", self.params)?;
        envelope.end()
    }
}

struct Params<'a, M>(&'a M);

impl<M: Message> Serialize for Params<'_, M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize_params(serializer)
    }
}
