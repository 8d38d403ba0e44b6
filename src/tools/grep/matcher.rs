//! The pattern as a matcher, or a sentence that says what is wrong with it.

use grep_regex::{Error, ErrorKind, RegexMatcher, RegexMatcherBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::Hir;

use super::bounded::Compiled;
use crate::limits::Limits;
use crate::tools::search::{clip, clip_start};
use crate::wire::GrepInput;

/// Builds the matcher; returns also what the answer should say about it.
///
/// # Errors
/// A sentence with the reason and the position.
pub(super) fn build(input: &GrepInput, limits: &Limits) -> Result<(Compiled, Vec<String>), String> {
    let pattern = &input.pattern;
    if pattern.is_empty() {
        return Err(
            "The pattern is empty: it would match every line. Use `read` for a whole file."
                .to_owned(),
        );
    }
    let case_insensitive = input.case_insensitive.unwrap_or(false);
    let mut builder = RegexMatcherBuilder::new();
    builder
        .case_insensitive(case_insensitive)
        .multi_line(true)
        .size_limit(limits.pattern_bytes)
        .dfa_size_limit(limits.pattern_cache_bytes)
        // `$` is before CRLF, too.
        .crlf(true);
    let refused = |error: &Error| {
        // The reason stands at the end, after the pattern and a mark below the place.
        let shown = clip(pattern, limits.quoted_chars);
        let error = error.to_string();
        let error = clip_start(&error, 4 * limits.quoted_chars);
        format!(
            "The pattern `{shown}` is not a valid regular expression (Rust `regex` syntax; escape special characters \
             with `\\` to take them literally):\n{error}"
        )
    };
    let mut notes = Vec::new();
    let by_line = (input.multiline != Some(true))
        .then(|| {
            compile(
                builder.line_terminator(Some(b'\n')),
                pattern,
                case_insensitive,
            )
        })
        .transpose();
    let (fast, hir) = match by_line {
        Ok(Some(compiled)) => compiled,
        Err(error) if !matches!(error.kind(), ErrorKind::NotAllowed(_)) => {
            return Err(refused(&error));
        }
        asked_or_needed => {
            if asked_or_needed.is_err() {
                notes.push(
                    "The pattern contains a line break, so it was matched across lines (as with `multiline`). In files \
                     with CRLF line ends write `\\r?\\n` for a line break."
                        .to_owned(),
                );
            }
            compile(builder.line_terminator(None), pattern, case_insensitive)
                .map_err(|error| refused(&error))?
        }
    };
    let compiled = Compiled::new(fast, hir, limits.pattern_steps, limits.pattern_bytes);
    Ok((compiled, notes))
}

/// Compiles a pattern for the fast engine, and parses it by the same rules.
pub(super) fn compile(
    builder: &RegexMatcherBuilder,
    pattern: &str,
    case_insensitive: bool,
) -> Result<(RegexMatcher, Hir), Error> {
    let fast = builder.build(pattern)?;
    let parsed = ParserBuilder::new()
        .utf8(false)
        .multi_line(true)
        .crlf(true)
        .case_insensitive(case_insensitive)
        .build()
        .parse(pattern);
    // What the one has taken the other takes, too.
    Ok((fast, parsed.unwrap_or_else(|_| Hir::fail())))
}
