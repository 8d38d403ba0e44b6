//! The pattern as a matcher, or a sentence that says what is wrong with it.

use grep_regex::{Error, ErrorKind, RegexMatcher, RegexMatcherBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};

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
        .dfa_size_limit(limits.pattern_cache_bytes);
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
    let alone = ParserBuilder::new()
        .utf8(false)
        .multi_line(true)
        .build()
        .parse(pattern)
        .map_err(|error| refused(&error))?;
    let understood = pattern.contains('#').then(|| alone.to_string());
    let pattern = understood.as_deref().unwrap_or(pattern);
    let mut notes = Vec::new();
    let by_line = (input.multiline != Some(true))
        .then(|| compile(&mut builder, pattern, case_insensitive, true))
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
            compile(&mut builder, pattern, case_insensitive, false)
                .map_err(|error| refused(&error))?
        }
    };
    let compiled = Compiled::new(fast, hir, limits.pattern_steps, limits.pattern_bytes);
    Ok((compiled, notes))
}

/// Compiles a pattern for the fast engine, and parses it by the same rules.
///
/// `^` and `$` take CRLF for a line end, unless the pattern speaks of CR itself: `\r$` asks for lines that end in CRLF.
pub(super) fn compile(
    builder: &mut RegexMatcherBuilder,
    pattern: &str,
    case_insensitive: bool,
    by_line: bool,
) -> Result<(RegexMatcher, Hir), Error> {
    let parse = |crlf| {
        ParserBuilder::new()
            .utf8(false)
            .multi_line(true)
            .crlf(crlf)
            .case_insensitive(case_insensitive)
            .build()
            .parse(pattern)
            // The other reports it.
            .unwrap_or_else(|_| Hir::fail())
    };
    let parsed = parse(true);
    let names_cr = names_cr(&parsed);
    let parsed = if names_cr { parse(false) } else { parsed };
    // The order matters: the first sets the terminator, too.
    builder
        .crlf(!names_cr)
        .line_terminator(by_line.then_some(b'\n'));
    let fast = builder.build(pattern)?;
    Ok((fast, parsed))
}

/// Whether a pattern spells out a CR.
fn names_cr(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Literal(literal) => literal.0.contains(&b'\r'),
        HirKind::Repetition(repetition) => names_cr(&repetition.sub),
        HirKind::Capture(capture) => names_cr(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().any(names_cr),
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(_) => false,
    }
}
