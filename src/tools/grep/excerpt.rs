//! The part of a line that is shown: bounded, with the hit in it, cut between characters.

use std::ops::Range;

use bstr::ByteSlice as _;

/// What stands where something was cut off.
const MARK: char = '…';

/// Returns at most `most` characters of `line` that contain the beginning of `hit`, and all of it where it fits.
///
/// Bytes that are not UTF-8, and NULs, stand as U+FFFD.
pub(super) fn excerpt(line: &[u8], hit: &Range<usize>, most: usize) -> String {
    if line.len() <= most {
        return clean(line);
    }
    let hit_start = hit.start.min(line.len());
    let (before, after) = line.split_at_checked(hit_start).unwrap_or((line, b""));
    // A hit with room to spare gets a fifth of it on its left; what is unused on one side goes to the other.
    let room = most.saturating_sub(2);
    let hit_chars = count(line.get(hit.clone()).unwrap_or_default(), room);
    let left = (room / 5).min(room.saturating_sub(hit_chars));
    let left_all = count_back(before, room);
    let right_all = count(after, room + 1);
    let left = if right_all <= room.saturating_sub(left) {
        room.saturating_sub(right_all)
    } else {
        left
    };
    let (shown_left, cut_left) = take_back(before, left.min(left_all));
    let used = count_back(shown_left, room);
    let (shown_right, cut_right) = take(after, room.saturating_sub(used));
    let mut out = String::new();
    if cut_left {
        out.push(MARK);
    }
    out.push_str(&clean(shown_left));
    out.push_str(&clean(shown_right));
    if cut_right {
        out.push(MARK);
    }
    out
}

fn clean(bytes: &[u8]) -> String {
    let text = bytes.to_str_lossy();
    if text.contains('\0') {
        text.replace('\0', "\u{fffd}")
    } else {
        text.into_owned()
    }
}

fn count(bytes: &[u8], most: usize) -> usize {
    bytes.char_indices().take(most).count()
}

fn count_back(bytes: &[u8], most: usize) -> usize {
    bytes.char_indices().rev().take(most).count()
}

/// Returns the first `chars` characters, and whether more follow.
fn take(bytes: &[u8], chars: usize) -> (&[u8], bool) {
    match bytes.char_indices().nth(chars) {
        Some((at, _, _)) => (bytes.get(..at).unwrap_or(bytes), true),
        None => (bytes, false),
    }
}

/// Returns the last `chars` characters, and whether more stand before.
fn take_back(bytes: &[u8], chars: usize) -> (&[u8], bool) {
    match bytes.char_indices().rev().nth(chars) {
        Some((_, end, _)) => (bytes.get(end..).unwrap_or(bytes), true),
        None => (bytes, false),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_excerpt_is_short_and_contains_the_hit(
            before in ".{0,400}", hit in "[a-zé]{1,20}", after in ".{0,400}", most in 60_usize..300,
        ) {
            let line = format!("{before}{hit}{after}");
            let shown = excerpt(line.as_bytes(), &(before.len()..before.len() + hit.len()), most);
            prop_assert!(shown.chars().count() <= most);
            let hit = hit.replace('\0', "\u{fffd}");
            prop_assert!(shown.contains(&hit), "{shown:?} lacks {hit:?}");
        }

        #[test]
        fn any_bytes_give_a_bounded_text(line in proptest::collection::vec(any::<u8>(), 0..900), at in 0_usize..900) {
            prop_assert!(excerpt(&line, &(at..at + 5), 100).chars().count() <= 100);
        }
    }

    #[test]
    fn both_ends_are_marked_where_they_were_cut() {
        let line = format!("{}needle{}", "a".repeat(1_000), "b".repeat(1_000));
        let shown = excerpt(line.as_bytes(), &(1_000..1_006), 100);
        assert!(shown.starts_with("…a") && shown.ends_with("b…") && shown.contains("needle"));
        assert_eq!(shown.chars().count(), 100);
        let shown = excerpt(line.as_bytes(), &(0..3), 100);
        assert!(shown.starts_with("aaa") && shown.ends_with('…'));
        assert_eq!(excerpt(b"short", &(0..1), 100), "short");
    }
}
