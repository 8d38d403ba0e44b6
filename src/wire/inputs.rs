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
    // The words of JSON for those of Rust.
    let mut what = error.inner().to_string();
    for (rust, json) in [
        ("a map", "an object"),
        ("a sequence", "an array"),
        ("type: map", "type: object"),
        ("type: sequence", "type: array"),
        ("duplicate field", "given twice, perhaps under two names:"),
    ] {
        what = what.replace(rust, json);
    }
    if path == "." {
        what
    } else {
        format!("`{path}`: {what}")
    }
}

/// Input of `bash`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BashInput {
    /// What bash runs.
    #[serde(deserialize_with = "without_nul")]
    pub command: String,
    /// Where, relative to the workspace.
    #[serde(default, deserialize_with = "optional_path")]
    pub cwd: Option<String>,
    /// When to end it, in milliseconds.
    #[serde(default)]
    pub timeout_ms: Option<TimeoutMs>,
    /// Variables added to its environment.
    #[serde(default, deserialize_with = "variables")]
    pub env: Option<BTreeMap<String, String>>,
}

/// A time-out in whole milliseconds above zero; the ceiling is applied by the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeoutMs(pub u64);

impl<'de> Deserialize<'de> for TimeoutMs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeMs::MS).map(Self)
    }
}

/// Input of `read`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ReadInput {
    /// The file.
    #[serde(alias = "file_path", deserialize_with = "path")]
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
    #[serde(alias = "file_path", deserialize_with = "path")]
    pub path: String,
    /// Its new content.
    pub content: String,
}

/// Input of `edit`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct EditInput {
    /// The file.
    #[serde(alias = "file_path", deserialize_with = "path")]
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
    #[serde(default, alias = "file_path", deserialize_with = "optional_path")]
    pub path: Option<String>,
}

/// Input of `grep`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GrepInput {
    /// The regular expression.
    #[serde(deserialize_with = "non_empty")]
    pub pattern: String,
    /// A directory or a file.
    #[serde(default, alias = "file_path", deserialize_with = "optional_path")]
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
    #[serde(default, alias = "file_path", deserialize_with = "optional_path")]
    pub path: Option<String>,
}

/// Takes a text that is handed to the system, which ends it at a NUL.
fn without_nul<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.contains('\0') {
        return Err(D::Error::custom(
            "it holds a NUL character (U+0000), which no command or path can",
        ));
    }
    Ok(text)
}

fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let path = without_nul(deserializer)?;
    if path.is_empty() {
        return Err(D::Error::invalid_length(
            0,
            &"a path; `.` is the workspace itself",
        ));
    }
    Ok(path)
}

fn optional_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    struct Path(String);
    impl<'de> Deserialize<'de> for Path {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            without_nul(deserializer).map(Self)
        }
    }
    // Empty as absent: models fill in what they do not need.
    let path = Option::<Path>::deserialize(deserializer)?;
    Ok(path.map(|Path(path)| path).filter(|path| !path.is_empty()))
}

/// Takes environment variables as the system can carry them.
pub(super) fn variables<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    let variables = Option::<BTreeMap<String, String>>::deserialize(deserializer)?;
    for (name, value) in variables.iter().flatten() {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(D::Error::custom(format!(
                "`{}` cannot be the name of a variable: it must not be empty or hold `=` or a NUL character",
                name.escape_debug()
            )));
        }
        if value.contains('\0') {
            return Err(D::Error::custom(format!(
                "the value of `{name}` holds a NUL character (U+0000), which no variable can"
            )));
        }
    }
    Ok(variables)
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
    // A whole number beyond 64 bits is still one; where there is no ceiling it counts as the largest.
    let beyond = number
        .as_f64()
        .is_some_and(|value| value.fract() == 0.0 && value > 1e18);
    match number.as_u64().or(beyond.then_some(u64::MAX)) {
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
