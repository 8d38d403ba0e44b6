//! The input of each tool, as a typed value.
//!
//! An optional member that is null counts as absent, unknown members are ignored (protocol section 2).

use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, Error as _, Unexpected};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::call::WholeMs;

/// Why an input cannot be taken; the text names the member at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidInput(String);

impl InvalidInput {
    /// Says that a tool of the contract takes no input here.
    pub fn not_built(tool: &str) -> Self {
        Self(format!("{tool} is not built into this executor"))
    }
}

/// Decodes a tool's input.
///
/// # Errors
/// [`InvalidInput`] names the member at fault and what was expected.
pub fn decode_input<T: DeserializeOwned>(input: Map<String, Value>) -> Result<T, InvalidInput> {
    serde_path_to_error::deserialize(Value::Object(input))
        .map_err(|error| InvalidInput(describe(&error)))
}

/// Names the member at fault first, then what is wrong with it.
pub(super) fn describe(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let path = error.path().to_string();
    if path == "." {
        error.inner().to_string()
    } else {
        format!("`{path}`: {}", error.inner())
    }
}

/// Input of `bash`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BashInput {
    /// What bash runs.
    pub command: String,
    /// Where, relative to the workspace.
    #[serde(default)]
    pub cwd: Option<String>,
    /// When to end it, in milliseconds.
    #[serde(default)]
    pub timeout_ms: Option<TimeoutMs>,
    /// Variables added to its environment.
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
}

/// A time-out in whole milliseconds above zero; the ceiling is applied by the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeoutMs(pub u64);

impl<'de> Deserialize<'de> for TimeoutMs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeMs).map(Self)
    }
}

/// Input of `read`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ReadInput {
    /// The file.
    #[serde(alias = "file_path", deserialize_with = "non_empty")]
    pub path: String,
    /// First line, from 1.
    #[serde(default, deserialize_with = "from_one")]
    pub offset: Option<u64>,
    /// Number of lines.
    #[serde(default, deserialize_with = "from_one")]
    pub limit: Option<u64>,
}

/// Input of `write`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WriteInput {
    /// The file.
    #[serde(alias = "file_path", deserialize_with = "non_empty")]
    pub path: String,
    /// Its new content.
    pub content: String,
}

/// Input of `edit`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct EditInput {
    /// The file.
    #[serde(alias = "file_path", deserialize_with = "non_empty")]
    pub path: String,
    /// What to replace.
    #[serde(deserialize_with = "non_empty")]
    pub old_string: String,
    /// What to put there.
    pub new_string: String,
    /// Replace each occurrence rather than exactly one.
    #[serde(default)]
    pub replace_all: Option<bool>,
    /// Refuse where the file's content has another digest (64 hexadecimal digits).
    #[serde(default, deserialize_with = "sha256_hex")]
    pub expected_sha256: Option<String>,
}

/// Input of `glob`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GlobInput {
    /// The pattern.
    #[serde(deserialize_with = "non_empty")]
    pub pattern: String,
    /// Where to search.
    #[serde(default)]
    pub path: Option<String>,
}

/// Input of `grep`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GrepInput {
    /// The regular expression.
    #[serde(deserialize_with = "non_empty")]
    pub pattern: String,
    /// A directory or a file.
    #[serde(default)]
    pub path: Option<String>,
    /// Which files.
    #[serde(default, alias = "include")]
    pub glob: Option<String>,
    /// Ignore case.
    #[serde(default)]
    pub case_insensitive: Option<bool>,
    /// Lines of context on both sides, at most 20.
    #[serde(default, deserialize_with = "context_lines")]
    pub context: Option<u64>,
    /// Let the pattern match across line ends.
    #[serde(default)]
    pub multiline: Option<bool>,
}

/// Input of `list_files`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ListFilesInput {
    /// The directory.
    #[serde(default)]
    pub path: Option<String>,
}

fn non_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Err(D::Error::invalid_length(0, &"a text that is not empty"));
    }
    Ok(text)
}

fn from_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    whole(deserializer, 1..=u64::MAX, "a whole number from 1")
}

fn context_lines<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    whole(deserializer, 0..=20, "a whole number from 0 to 20")
}

fn whole<'de, D: Deserializer<'de>>(
    deserializer: D,
    range: std::ops::RangeInclusive<u64>,
    expected: &str,
) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else {
        return Ok(None);
    };
    match number.as_u64() {
        Some(value) if range.contains(&value) => Ok(Some(value)),
        _ => Err(D::Error::invalid_value(
            Unexpected::Other(&number.to_string()),
            &expected,
        )),
    }
}

fn sha256_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let digest = Option::<String>::deserialize(deserializer)?;
    match digest {
        Some(text) if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Err(D::Error::custom(
                "expected a SHA-256 digest: 64 hexadecimal digits",
            ))
        }
        other => Ok(other.map(|text| text.to_ascii_lowercase())),
    }
}
