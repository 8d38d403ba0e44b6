//! The trace that a call belongs to (W3C Trace Context, `traceparent`), as far as this executor passes it on.
//!
//! What does not have the standard's form is as if it were not there: a fault in somebody's tracing must never fail a call.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A `traceparent` that has the standard's form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct TraceParent(String);

/// Length of version 00: two, 32, 16 and two hexadecimal digits with a hyphen between.
const LENGTH: usize = 55;

impl TraceParent {
    /// Takes a value that has the standard's form; a later version may be longer.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, rest) = text.split_at_checked(LENGTH)?;
        let mut parts = head.split('-');
        let version = hex(parts.next()?, 2)?;
        let trace_id = hex(parts.next()?, 32)?;
        let parent_id = hex(parts.next()?, 16)?;
        hex(parts.next()?, 2)?;
        let ended = rest.is_empty() || (version != "00" && rest.starts_with('-'));
        let is_zero = |id: &str| id.bytes().all(|digit| digit == b'0');
        let valid = ended
            && parts.next().is_none()
            && version != "ff"
            && !is_zero(trace_id)
            && !is_zero(parent_id);
        // What a later version adds is not known to be harmless in a log, and this one says nothing of it.
        valid.then(|| Self(head.to_owned()))
    }

    /// Returns the id of the trace: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        self.0.get(3..35).unwrap_or_default()
    }

    /// Returns the id of the span that made the call: 16 hexadecimal digits.
    pub fn parent_id(&self) -> &str {
        self.0.get(36..52).unwrap_or_default()
    }
}

fn hex(text: &str, digits: usize) -> Option<&str> {
    let fits = text.len() == digits
        && text
            .bytes()
            .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    fits.then_some(text)
}

/// Takes anything, and keeps what is a `traceparent`.
pub(super) fn lenient<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<TraceParent>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_str().and_then(TraceParent::parse))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const PARENT: &str = "b7ad6b7169203331";

    #[test]
    fn a_traceparent_is_taken_only_in_the_form_of_the_standard() {
        for good in [
            format!("00-{TRACE}-{PARENT}-01"),
            format!("00-{TRACE}-{PARENT}-ff"),
            format!("cc-{TRACE}-{PARENT}-01"),
            format!("cc-{TRACE}-{PARENT}-01-what-comes-later"),
        ] {
            let parsed = TraceParent::parse(&good).unwrap_or_else(|| panic!("{good}"));
            assert_eq!((parsed.trace_id(), parsed.parent_id()), (TRACE, PARENT));
        }
        for bad in [
            String::new(),
            "00".to_owned(),
            format!("ff-{TRACE}-{PARENT}-01"),
            format!("00-{TRACE}-{PARENT}-01-more"),
            format!("00-{TRACE}-{PARENT}-01 "),
            format!(" 00-{TRACE}-{PARENT}-01"),
            format!("00-{TRACE}-{PARENT}-0"),
            format!("cc-{TRACE}-{PARENT}-01.more"),
            format!("00-{}-{PARENT}-01", TRACE.to_uppercase()),
            format!("00-{}-{PARENT}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00_{TRACE}_{PARENT}_01"),
            format!("00-{TRACE}é{PARENT}-01"),
            "ä".repeat(55),
        ] {
            assert_eq!(TraceParent::parse(&bad), None, "{bad}");
        }
    }
}
