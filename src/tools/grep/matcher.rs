//! The pattern as a matcher, or a sentence that says what is wrong with it.

use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};

use regex_syntax::ParserBuilder;

use crate::limits::Limits;
use crate::tools::search::{clip, clip_start};
use crate::wire::GrepInput;

/// Builds the matcher; returns whether matches may span lines, and what the answer should say about that.
///
/// # Errors
/// A sentence with the reason and the position.
pub(super) fn build(
    input: &GrepInput,
    limits: &Limits,
) -> Result<(RegexMatcher, bool, Vec<String>), String> {
    let pattern = &input.pattern;
    if pattern.is_empty() {
        return Err(
            "The pattern is empty: it would match every line. Use `read` for a whole file."
                .to_owned(),
        );
    }
    let mut builder = RegexMatcherBuilder::new();
    builder
        .case_insensitive(input.case_insensitive.unwrap_or(false))
        .multi_line(true)
        .size_limit(limits.pattern_bytes)
        .dfa_size_limit(limits.pattern_cache_bytes)
        // `$` is before CRLF, too.
        .crlf(true);
    let refused = |error: &dyn std::fmt::Display| {
        // The reason stands at the end, after the pattern and a mark below the place.
        let shown = clip(pattern, limits.quoted_chars);
        let error = error.to_string();
        let error = clip_start(&error, 4 * limits.quoted_chars);
        format!(
            "The pattern `{shown}` is not a valid regular expression (Rust `regex` syntax; escape special characters \
             with `\\` to take them literally):\n{error}"
        )
    };
    // The engine puts the pattern into a group, where `a)|(b` would be valid and a comment would swallow the end. So it
    // is parsed alone first, and where a comment is possible it is handed on as it was understood.
    let parsed = ParserBuilder::new()
        .utf8(false)
        .multi_line(true)
        .build()
        .parse(pattern);
    let parsed = parsed.map_err(|error| refused(&error))?;
    let understood = pattern.contains('#').then(|| parsed.to_string());
    let pattern_text = understood.as_deref().unwrap_or(pattern);
    if input.multiline == Some(true) {
        let matcher = builder.line_terminator(None).build(pattern_text);
        return Ok((matcher.map_err(|error| refused(&error))?, true, Vec::new()));
    }
    match builder.line_terminator(Some(b'\n')).build(pattern_text) {
        Ok(matcher) => Ok((matcher, false, Vec::new())),
        Err(error) if matches!(error.kind(), ErrorKind::NotAllowed(_)) => {
            let matcher = builder.line_terminator(None).build(pattern_text);
            let note = "The pattern contains a line break, so it was matched across lines (as with `multiline`). \
                        In files with CRLF line ends write `\\r?\\n` for a line break."
                .to_owned();
            Ok((matcher.map_err(|error| refused(&error))?, true, vec![note]))
        }
        Err(error) => Err(refused(&error)),
    }
}
