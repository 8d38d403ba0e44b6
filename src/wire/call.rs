//! A tool call as it arrives.

use std::fmt;
use std::num::NonZeroU64;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value};

use super::trace::{TraceParent, lenient};
use super::{SessionId, ToolCallId};

/// `tool.call`: run one tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The session it belongs to.
    pub session_id: SessionId,
    /// Its id within the session.
    pub tool_call_id: ToolCallId,
    /// The tool's name.
    pub name: String,
    /// The tool's input, decoded by the tool's own type before it runs.
    pub input: Map<String, Value>,
    /// When the call must have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<DeadlineMs>,
    /// What the harness decided about it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object"
    )]
    pub permission: Option<Permission>,
    /// The trace it belongs to; anything else than the standard's form counts as absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient"
    )]
    pub traceparent: Option<TraceParent>,
}

/// Takes an object or null; a derived struct alone would also take an array.
pub(super) fn object<'de, D: Deserializer<'de>, T: de::DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let members = Option::<Map<String, Value>>::deserialize(deserializer)?;
    members
        .map(|members| T::deserialize(Value::Object(members)))
        .transpose()
        .map_err(de::Error::custom)
}

/// A deadline as the protocol writes it: milliseconds from receipt below 100,000,000,000, since the Unix epoch from there on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct DeadlineMs(u64);

impl DeadlineMs {
    /// From this value on, a deadline is a point in time (protocol section 3).
    const EPOCH_FROM: u64 = 100_000_000_000;

    /// Takes a number of milliseconds; zero is refused.
    pub fn new(ms: u64) -> Option<Self> {
        (ms > 0).then_some(Self(ms))
    }

    /// Returns the milliseconds left at `now_ms` (since the epoch); `None` where the deadline has passed.
    pub fn left_ms(self, now_ms: u64) -> Option<u64> {
        if self.0 < Self::EPOCH_FROM {
            return Some(self.0);
        }
        self.0.checked_sub(now_ms).filter(|left| *left > 0)
    }
}

impl<'de> Deserialize<'de> for DeadlineMs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeMs::MS).map(Self)
    }
}

/// Takes a whole number above zero or null.
pub(super) fn positive<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<NonZeroU64>, D::Error> {
    struct Positive(NonZeroU64);
    impl<'de> Deserialize<'de> for Positive {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let value = deserializer.deserialize_any(WholeMs("a whole number above 0"))?;
            NonZeroU64::new(value)
                .map(Self)
                .ok_or_else(|| de::Error::custom("it must be above 0"))
        }
    }
    Ok(Option::<Positive>::deserialize(deserializer)?.map(|Positive(value)| value))
}

/// Takes a whole number above zero, which the text describes; a number beyond 64 bits counts as the largest.
pub(super) struct WholeMs(pub(super) &'static str);

impl WholeMs {
    /// A number of milliseconds.
    pub(super) const MS: Self = Self("a whole number of milliseconds above 0");
}

impl de::Visitor<'_> for WholeMs {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
        if value == 0 {
            Err(E::invalid_value(de::Unexpected::Unsigned(0), &self))
        } else {
            Ok(value)
        }
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
        u64::try_from(value)
            .ok()
            .filter(|value| *value > 0)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(value), &self))
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value is a whole number above zero; the cast saturates"
    )]
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<u64, E> {
        if value.fract() != 0.0 || value < 1.0 {
            return Err(E::invalid_value(de::Unexpected::Float(value), &self));
        }
        Ok(value as u64)
    }
}

/// What the harness decided about a call (protocol section 8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permission {
    /// The decision.
    pub decision: Decision,
    /// Why, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A harness's decision about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Run it.
    Allow,
    /// Never run it.
    Deny,
    /// Ask the configured approval command.
    Ask,
}
