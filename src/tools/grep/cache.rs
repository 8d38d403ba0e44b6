//! Patterns compiled before: a class of Unicode letters takes longer to compile than a small tree to search, and a model
//! repeats its patterns.
//!
//! What is kept is never searched with, so that it does not grow: each search takes a copy with buffers of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::bounded::Compiled;
use super::matcher::build;
use crate::limits::Limits;
use crate::wire::GrepInput;

/// What decides how a pattern is compiled.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    pattern: String,
    case_insensitive: bool,
    multiline: bool,
}

/// A compiled pattern, and what an answer should say about it.
#[derive(Debug, Clone)]
pub(super) struct Cached {
    pub(super) pattern: Arc<Compiled>,
    pub(super) notes: Vec<String>,
}

/// The latest patterns of all sessions, the latest last.
static LATEST: Mutex<VecDeque<(Key, Cached)>> = Mutex::new(VecDeque::new());

/// Returns the compiled pattern of a search.
///
/// # Errors
/// A sentence for the model.
pub(super) fn compiled(input: &GrepInput, limits: &Limits) -> Result<Cached, String> {
    let key = Key {
        pattern: input.pattern.clone(),
        case_insensitive: input.case_insensitive.unwrap_or(false),
        multiline: input.multiline.unwrap_or(false),
    };
    if let Some(found) = take(&key) {
        keep(key, &found, limits.patterns_kept);
        return Ok(found);
    }
    let (pattern, notes) = build(input, limits)?;
    let pattern = Arc::new(pattern);
    let cached = Cached { pattern, notes };
    if cached.pattern.weight() <= limits.pattern_kept_weight {
        keep(key, &cached, limits.patterns_kept);
    }
    Ok(cached)
}

fn take(key: &Key) -> Option<Cached> {
    let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    let at = latest.iter().position(|(kept, _)| kept == key)?;
    latest.remove(at).map(|(_, cached)| cached)
}

fn keep(key: Key, cached: &Cached, most: usize) {
    let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    latest.push_back((key, cached.clone()));
    if latest.len() > most {
        latest.pop_front();
    }
}
