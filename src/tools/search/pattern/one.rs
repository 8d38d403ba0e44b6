//! One plain pattern, compiled: by `globset` where bytes are enough, by characters where it asks for one.
//!
//! `globset` matches `?` and classes byte by byte, so that `caf?` would not find `café`.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use bstr::ByteSlice as _;
use globset::{Glob, GlobBuilder, GlobMatcher};
use regex::Regex;

use super::BadPattern;

/// A plain pattern, without braces.
#[derive(Debug, Clone)]
pub(in crate::tools) enum One {
    /// Without `?` and classes bytes and characters come to the same.
    Bytes(GlobMatcher),
    /// With them.
    Chars(Regex),
}

impl One {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// [`BadPattern`] with the reason.
    pub(super) fn new(text: &str) -> Result<Self, BadPattern> {
        let glob = check(text)?;
        if !asks_for_characters(text) {
            return Ok(Self::Bytes(glob.compile_matcher()));
        }
        Regex::new(&translate(text))
            .map(Self::Chars)
            .map_err(|_too_large| BadPattern("it is too large".to_owned()))
    }

    /// Whether a path, or a name, matches.
    pub(super) fn is_match(&self, path: &[u8]) -> bool {
        match self {
            Self::Bytes(glob) => glob.is_match(Path::new(OsStr::from_bytes(path))),
            Self::Chars(regex) => regex.is_match(&characters(path)),
        }
    }
}

/// Parses a pattern, braces included.
///
/// # Errors
/// [`BadPattern`] with the reason.
pub(super) fn check(text: &str) -> Result<Glob, BadPattern> {
    GlobBuilder::new(text)
        .literal_separator(true)
        .backslash_escape(true)
        .empty_alternates(true)
        .build()
        .map_err(|error| BadPattern(error.kind().to_string()))
}

/// Returns a path as characters. A byte that is not UTF-8 becomes one that no name has.
fn characters(path: &[u8]) -> Cow<'_, str> {
    const NONE: &str = "\u{10fffe}";
    if let Ok(text) = path.to_str() {
        return text.into();
    }
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| NONE));
    }
    text.into()
}

fn asks_for_characters(text: &str) -> bool {
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => drop(chars.next()),
            '?' | '[' => return true,
            _ => {}
        }
    }
    false
}

/// Returns the expression that a pattern stands for; the pattern is known to be sound.
fn translate(text: &str) -> String {
    let mut out = String::from("(?s)^");
    let mut parts = text.split('/').peekable();
    let mut first = true;
    while let Some(part) = parts.next() {
        if part == "**" {
            // It stands for any directories, also none; at the end for anything below.
            out.push_str(match (first, parts.peek().is_some()) {
                (true, true) => "(?:.*/)?",
                (true, false) => ".*",
                (false, true) => "(?:/.*)?/",
                (false, false) => "/.+",
            });
            // The slash after it is in there already.
            first = true;
            continue;
        }
        if !first {
            out.push('/');
        }
        first = false;
        translate_part(part, &mut out);
    }
    out.push('$');
    out
}

fn translate_part(part: &str, out: &mut String) {
    let mut chars = part.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => out.extend(
                chars
                    .next()
                    .map(|char| regex::escape(char.encode_utf8(&mut [0; 4]))),
            ),
            '?' => out.push_str("[^/]"),
            '*' => out.push_str("[^/]*"),
            '[' => {
                let rest = chars.as_str();
                let (class, tail) = split_class(rest);
                out.push_str(&translate_class(class));
                chars = tail.chars();
            }
            plain => out.push_str(&regex::escape(plain.encode_utf8(&mut [0; 4]))),
        }
    }
}

/// Splits after the class whose `[` was read: what is in it, and what follows its `]`.
fn split_class(rest: &str) -> (&str, &str) {
    let skip = rest.len() - rest.trim_start_matches(['!', '^']).len();
    let skip = skip.min(1);
    let first = rest.get(skip..).unwrap_or_default();
    // A `]` that comes first is meant.
    let from = skip + usize::from(first.starts_with(']'));
    let close = rest.get(from..).and_then(|inner| inner.find(']'));
    let close = close.map_or(rest.len(), |at| from + at);
    (
        rest.get(..close).unwrap_or(rest),
        rest.get(close + 1..).unwrap_or_default(),
    )
}

fn translate_class(class: &str) -> String {
    let (negated, inner) = match class.strip_prefix(['!', '^']) {
        Some(inner) => ("^", inner),
        None => ("", class),
    };
    let mut out = format!("[[{negated}");
    let mut chars = inner.chars().peekable();
    let mut is_first = true;
    while let Some(char) = chars.next() {
        let is_range = char == '-' && !is_first && chars.peek().is_some();
        if is_range {
            out.push('-');
        } else {
            // Each by its number: no character has a meaning then.
            let number = u32::from(char);
            out.extend([r"\x{", &format!("{number:x}"), "}"]);
        }
        is_first = is_range;
    }
    out.push_str("]&&[^/]]");
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check_matches(pattern: &str, yes: &[&[u8]], no: &[&[u8]]) {
        let one = One::new(pattern).unwrap();
        for path in yes {
            assert!(one.is_match(path), "{pattern} misses {}", path.as_bstr());
        }
        for path in no {
            assert!(!one.is_match(path), "{pattern} takes {}", path.as_bstr());
        }
    }

    #[test]
    fn a_question_mark_and_a_class_stand_for_one_character() {
        check_matches(
            "caf?.txt",
            &["café.txt".as_bytes(), b"cafe.txt", b"caf\xe9.txt"],
            &[b"caf.txt", b"caf/.txt", b"cafee.txt", b"caf\xe9\xe9.txt"],
        );
        check_matches(
            "[äö]*",
            &["äh".as_bytes(), "ö".as_bytes()],
            &["ü".as_bytes(), b"\xc3"],
        );
        check_matches("[!a]b", &["éb".as_bytes(), b"\xffb"], &[b"ab", b"/b", b"b"]);
        check_matches("[]x-z-]", &[b"]", b"y", b"-"], &[b"w"]);
        check_matches(r"a\?[b]", &[b"a?b"], &[b"axb"]);
        check_matches(
            "**/[ab]?/**",
            &[b"ax/y", b"p/q/by/z/w"],
            &[b"ax", b"cx/y", b"ax/"],
        );
        check_matches("?/**/x", &[b"a/x", b"a/b/c/x"], &[b"ab/x", b"a/bx", b"x"]);
    }

    proptest! {
        #[test]
        fn for_plain_ascii_it_agrees_with_globset(
            parts in proptest::collection::vec(
                prop_oneof![Just("**"), Just("?"), Just("*"), Just("[ab]"), Just("[!a]x"), Just("a"), Just("b?"), Just("a*b")], 1..4,
            ),
            names in proptest::collection::vec("[ab]{1,3}", 1..4),
        ) {
            let path = names.join("/");
            // `globset` lets a class take a slash, where no shell does.
            let pattern = parts.join("/");
            let expected = check(&pattern).unwrap().compile_matcher().is_match(&path);
            let found = Regex::new(&translate(&pattern)).unwrap().is_match(&path);
            if pattern.contains("[!a]x") {
                prop_assert!(expected || !found);
            } else {
                prop_assert_eq!(found, expected, "{} on {}", pattern, path);
            }
        }
    }
}
