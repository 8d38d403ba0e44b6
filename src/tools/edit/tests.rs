//! The matcher against a slow one that is plainly right.

use std::ops::Range;

use proptest::prelude::*;

use super::matching::{Found, Matcher, lines, replace};
use crate::stop::Stop;

/// Returns the end of `text` at `at`, line breaks matched as whole breaks.
fn match_at(file: &[u8], at: usize, text: &[u8]) -> Option<usize> {
    let mut here = at;
    let mut left = text;
    while let Some((byte, rest)) = left.split_first() {
        let is_break = *byte == b'\n' || left.starts_with(b"\r\n");
        left = if left.starts_with(b"\r\n") {
            &left[2..]
        } else {
            rest
        };
        if is_break {
            if here > 0 && file[here - 1] == b'\r' && file.get(here) == Some(&b'\n') {
                return None;
            }
            here += match &file[here..] {
                [b'\r', b'\n', ..] => 2,
                [b'\n', ..] => 1,
                _ => return None,
            };
        } else {
            // A CR that belongs to a line break is no CR of its own.
            if file.get(here) != Some(byte) || file[here..].starts_with(b"\r\n") {
                return None;
            }
            here += 1;
        }
    }
    Some(here)
}

fn slow(file: &[u8], text: &[u8], all: bool) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at <= file.len() {
        match match_at(file, at, text) {
            Some(end) => {
                found.push(at..end);
                at = if all { end } else { at + 1 };
            }
            None => at += 1,
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn places_are_those_of_the_slow_matcher(
        file in prop::collection::vec(prop::sample::select(b"ab\r\n\n".to_vec()), 0..40),
        text in "[ab]{0,2}(\n|\r\n)[ab\n]{0,3}",
        all in any::<bool>(),
    ) {
        let stop = Stop::new();
        let want = slow(&file, text.as_bytes(), all);
        let found = Matcher::new(&file, &text, 1_000, &stop).find(all).unwrap();
        match found {
            Found::None => prop_assert!(want.is_empty(), "{want:?}"),
            Found::Places(places) => prop_assert_eq!(places, want),
            Found::Several { count, lines: at, .. } => {
                prop_assert!(!all && count == want.len());
                let starts = want.iter().map(|place| place.start);
                prop_assert_eq!(at, lines(&file, starts, 10));
            }
            Found::TooMany => prop_assert!(false),
        }
    }

    #[test]
    fn bytes_outside_the_places_stay_and_breaks_are_uniform_where_the_file_is(
        parts in prop::collection::vec("[ab]{0,3}", 1..8),
        new in "[xy]{0,2}((\n|\r\n)[xy]{0,2}){0,3}",
        crlf in any::<bool>(),
    ) {
        let ending = if crlf { "\r\n" } else { "\n" };
        let file = parts.join("Q") + ending;
        let stop = Stop::new();
        if let Found::Places(places) = Matcher::new(file.as_bytes(), "Q", 1_000, &stop).find(true).unwrap() {
            let after = replace(file.as_bytes(), &places, &new);
            let want = new.replace("\r\n", "\n").replace('\n', ending);
            prop_assert_eq!(after, file.replace('Q', &want).into_bytes());
        }
    }
}
