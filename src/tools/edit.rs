//! `edit`: one text for another, and every byte outside it as it was.

mod hint;
mod matching;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use super::digest::sha256_hex;
use super::write::{failed, refused};
use super::{Ctx, ToolOutput};
use crate::limits::Limits;
use crate::stop::{Stop, StopCause};
use crate::wire::{Details, EditDetails, EditInput};
use crate::workspace::{Attempt, Parents, Target};
use matching::{Found, Matcher};

/// Lines that `details` lists (the contract's ceiling).
const MAX_LINES: usize = 100;
/// Lines that a sentence lists; more help nobody.
const SHOWN_LINES: usize = 10;

/// Runs `edit`.
pub async fn edit(ctx: &Ctx, input: EditInput) -> ToolOutput {
    if input.old_string.is_empty() {
        return ToolOutput::error(
            "`old_string` is empty: name the text to replace, or use write for the whole file",
        );
    }
    if input.old_string == input.new_string {
        return ToolOutput::error(
            "`old_string` and `new_string` are the same: nothing was changed",
        );
    }
    let path = input.path.clone();
    let limits = Arc::clone(&ctx.limits);
    let changed = ctx
        .workspace
        .change_file(&ctx.stop, path, Parents::Refuse, move |stop, target| {
            edit_target(&input, &limits, stop, target)
        })
        .await;
    changed.unwrap_or_else(refused)
}

fn edit_target(
    input: &EditInput,
    limits: &Limits,
    stop: &Stop,
    target: &Target,
) -> Attempt<ToolOutput> {
    let max = limits.edit_bytes;
    let path = target.spelled();
    let done = |sentence: String| Attempt::Done(ToolOutput::error(sentence));
    let (old, seen) = match target.read(max, stop) {
        Ok(Ok(read)) => read,
        Ok(Err(size)) => {
            return done(format!(
                "`{path}` has {size} bytes; edit takes at most {max}: use bash (sed, awk) instead"
            ));
        }
        Err(error) => return failed(error),
    };
    if let Some(expected) = &input.expected_sha256 {
        let actual = sha256_hex(&old);
        if !actual.eq_ignore_ascii_case(expected) {
            return done(format!(
                "`{path}` is not what `expected_sha256` says: its SHA-256 is {actual}; nothing was changed: read it \
                 again and edit what is there now"
            ));
        }
    }
    let places = match find(input, limits, stop, &old, &path) {
        Ok(places) => places,
        Err(Refusal::Sentence(sentence)) => return done(sentence),
        Err(Refusal::Stopped(cause)) => return Attempt::Done(ToolOutput::stopped(cause)),
    };
    let largest = matching::largest(&old, &places, &input.new_string);
    if u64::try_from(largest).unwrap_or(u64::MAX) > max {
        return done(format!(
            "`{path}` would have up to {largest} bytes after {} replacements; edit makes at most {max}: nothing was changed",
            places.len()
        ));
    }
    let new = matching::replace(&old, &places, &input.new_string);
    if new == old {
        return done(format!(
            "the edit would change nothing in `{path}`: the line breaks of `new_string` take the line ending that the \
             file has there"
        ));
    }
    if let Err(error) = target.replace(&new, Some(&seen), stop) {
        return failed(error);
    }
    let lines = matching::lines(&old, places.iter().map(|place| place.start), MAX_LINES);
    let count = places.len();
    let plural = if count == 1 { "" } else { "s" };
    let text = format!(
        "Edited {path}: {count} replacement{plural}, {}",
        name_lines(&lines, count)
    );
    let details = EditDetails {
        path: target.shown().to_owned(),
        replacements: u64::try_from(count).unwrap_or(u64::MAX),
        lines,
        bytes_before: u64::try_from(old.len()).unwrap_or(u64::MAX),
        bytes_after: u64::try_from(new.len()).unwrap_or(u64::MAX),
        sha256: sha256_hex(&new),
    };
    Attempt::Done(ToolOutput::done(text, [], Details::Edit(details)))
}

/// Why nothing is replaced.
enum Refusal {
    Sentence(String),
    Stopped(StopCause),
}

/// Finds what is to be replaced, or says why nothing is.
fn find(
    input: &EditInput,
    limits: &Limits,
    stop: &Stop,
    old: &[u8],
    path: &str,
) -> Result<Vec<Range<usize>>, Refusal> {
    let max = limits.edit_replacements;
    let matcher = Matcher::new(old, &input.old_string, max, stop);
    let found = matcher
        .find(input.replace_all.unwrap_or(false))
        .map_err(|stopped| Refusal::Stopped(stopped.0))?;
    let sentence = match found {
        Found::Places(places) => return Ok(places),
        Found::None => format!(
            "`old_string` does not occur in `{path}`; nothing was changed: {}",
            hint::hint(old, &input.old_string)
        ),
        Found::TooMany => format!(
            "`old_string` occurs more than {max} times in `{path}`; nothing was changed: use bash (sed) instead"
        ),
        Found::Several {
            count,
            at_least,
            lines,
        } => {
            let about = if at_least { "at least " } else { "" };
            format!(
                "`old_string` occurs {about}{count} times in `{path}` ({}); nothing was changed: add surrounding text so \
                 that it occurs once, or set `replace_all`",
                name_lines(&lines, count)
            )
        }
    };
    Err(Refusal::Sentence(sentence))
}

/// Names the first lines of `count` places.
fn name_lines(lines: &[u64], count: usize) -> String {
    let shown: Vec<String> = lines
        .iter()
        .take(SHOWN_LINES)
        .map(ToString::to_string)
        .collect();
    let more = if count > shown.len() { ", …" } else { "" };
    let plural = if count == 1 { "" } else { "s" };
    format!("line{plural} {}{more}", shown.join(", "))
}
