//! Session and call ids, checked once at the edge.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

/// Longest id, in characters (protocol section 3).
const MAX_CHARS: usize = 128;

/// Why a text cannot be an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id has 1 to 128 characters and no control characters")]
pub struct InvalidId;

fn check(text: &str) -> Result<(), InvalidId> {
    // The byte test comes first so that an id of a megabyte costs nothing to refuse.
    if text.is_empty()
        || text.len() > MAX_CHARS * 4
        || text.chars().count() > MAX_CHARS
        || text.chars().any(char::is_control)
    {
        return Err(InvalidId);
    }
    Ok(())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Checks and takes an id.
            ///
            /// # Errors
            /// [`InvalidId`] where the text is empty, longer than 128 characters or holds a control character.
            pub fn new(text: &str) -> Result<Self, InvalidId> {
                check(text)?;
                Ok(Self(text.into()))
            }

            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::new(&text).map_err(de::Error::custom)
            }
        }
    };
}

id!(
    /// Names a session; chosen by the harness.
    SessionId
);
id!(
    /// Names a call within its session; chosen by the harness.
    ToolCallId
);
