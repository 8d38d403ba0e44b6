//! What one stream of a command said: its head, its tail and exact counts, in bounded memory.
//!
//! It must never grow with the output, nor decide what a reader sees of it.

use std::collections::VecDeque;

/// A stream as it was taken: bytes, not text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Capture {
    head: Vec<u8>,
    head_max: usize,
    tail: VecDeque<u8>,
    tail_max: usize,
    total: u64,
    undecodable: u64,
    /// The bytes of a character that has not ended yet, at most three.
    torn: Vec<u8>,
}

/// A stream cut to a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Preview {
    /// The beginning, or the whole where nothing is missing.
    pub(crate) head: String,
    /// Bytes missing between head and tail.
    pub(crate) missing: u64,
    /// The end, where something is missing.
    pub(crate) tail: String,
}

impl Capture {
    /// Makes a capture from which any preview of up to `preview` bytes can be cut.
    pub(crate) fn new(preview: usize) -> Self {
        Self {
            head: Vec::new(),
            head_max: preview / 2,
            tail: VecDeque::new(),
            tail_max: preview,
            total: 0,
            undecodable: 0,
            torn: Vec::new(),
        }
    }

    /// Takes the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        self.count_undecodable(bytes);
        let room = self.head_max - self.head.len();
        let (first, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.head.extend_from_slice(first);
        let kept = rest.len().saturating_sub(self.tail_max);
        let rest = rest.get(kept..).unwrap_or_default();
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.tail_max);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    /// Returns how many bytes were taken.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns how many bytes are not UTF-8, with those of a last character that never ended.
    pub(crate) fn undecodable(&self) -> u64 {
        self.undecodable + self.torn.len() as u64
    }

    /// Returns everything taken so far, where nothing has been let go.
    pub(crate) fn whole(&self) -> Option<Vec<u8>> {
        let kept = self.head.len() + self.tail.len();
        (kept as u64 == self.total).then(|| {
            let mut whole = Vec::with_capacity(kept);
            whole.extend_from_slice(&self.head);
            whole.extend(&self.tail);
            whole
        })
    }

    /// Cuts a preview of at most `budget` bytes; the tail gets at least half of it.
    pub(crate) fn preview(&self, budget: usize) -> Preview {
        let whole = self.whole();
        if let Some(whole) = whole.as_ref().filter(|whole| whole.len() <= budget) {
            return Preview {
                head: String::from_utf8_lossy(whole).into_owned(),
                missing: 0,
                tail: String::new(),
            };
        }
        // Where nothing has been let go, the end may still reach into what is kept as the head.
        let tail: Vec<u8> = whole.unwrap_or_else(|| self.tail.iter().copied().collect());
        let tail_at = tail.len().saturating_sub(budget - budget / 2);
        let tail = tail.get(tail_at..).unwrap_or_default();
        let tail = tail.get(continuations(tail)..).unwrap_or_default();
        let head = self.head.get(..budget / 2).unwrap_or(&self.head);
        let head = head.get(..complete(head)).unwrap_or_default();
        Preview {
            head: String::from_utf8_lossy(head).into_owned(),
            missing: self.total - (head.len() + tail.len()) as u64,
            tail: String::from_utf8_lossy(tail).into_owned(),
        }
    }

    fn count_undecodable(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        // What the last read boundary tore is completed byte by byte, a few at most.
        while let Some((first, rest)) = bytes.split_first().filter(|_| !self.torn.is_empty()) {
            let mut joined = std::mem::take(&mut self.torn);
            joined.push(*first);
            self.count_in(&joined);
            bytes = rest;
        }
        self.count_in(bytes);
    }

    fn count_in(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        while let Err(error) = std::str::from_utf8(bytes) {
            let rest = bytes.get(error.valid_up_to()..).unwrap_or_default();
            let Some(bad) = error.error_len() else {
                self.torn = rest.to_vec();
                return;
            };
            self.undecodable += bad as u64;
            bytes = rest.get(bad..).unwrap_or_default();
        }
    }
}

/// Returns how much of a text that was cut somewhere ends at a character boundary.
pub(super) fn complete(text: &[u8]) -> usize {
    for (back, byte) in text.iter().rev().take(3).enumerate() {
        let length = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        return if length > back + 1 {
            text.len() - back - 1
        } else {
            text.len()
        };
    }
    text.len()
}

/// Returns how many bytes at the start may belong to a character that began before it.
pub(super) fn continuations(text: &[u8]) -> usize {
    let inside = |byte: &&u8| matches!(byte, 0x80..=0xbf);
    text.iter().take(3).take_while(inside).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taken(bytes: &[u8], chunk: usize, preview: usize) -> Capture {
        let mut capture = Capture::new(preview);
        bytes
            .chunks(chunk.max(1))
            .for_each(|part| capture.push(part));
        capture
    }

    proptest! {
        #[test]
        fn chunks_make_no_difference(
            bytes in proptest::collection::vec(prop_oneof![Just(0xe2u8), Just(0x80), Just(0x94), Just(0xf0), Just(b'a'), any::<u8>()], 0..200),
            chunk in 1usize..9,
            preview in 0usize..64,
        ) {
            let capture = taken(&bytes, chunk, preview);
            prop_assert_eq!(&capture, &taken(&bytes, bytes.len(), preview));
            prop_assert_eq!(capture.total(), bytes.len() as u64);
            let bad: usize = bytes.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
            prop_assert_eq!(capture.undecodable(), bad as u64);
        }

        #[test]
        fn a_preview_keeps_both_ends_and_counts_what_is_missing(
            text in "[a-zé—😀]{0,120}",
            chunk in 1usize..9,
            preview in 8usize..64,
            share in 1usize..4,
        ) {
            let capture = taken(text.as_bytes(), chunk, preview);
            let cut = capture.preview(preview / share);
            prop_assert_eq!((cut.head.len() + cut.tail.len()) as u64 + cut.missing, text.len() as u64);
            prop_assert!(cut.head.len() + cut.tail.len() <= preview / share);
            prop_assert!(text.starts_with(&cut.head) && text.ends_with(&cut.tail));
            // Three bytes at most are given up for a boundary.
            prop_assert!(cut.missing == 0 || cut.tail.len() + 3 >= preview / share / 2);
        }
    }

    #[test]
    fn a_character_that_never_ends_is_one_replacement() {
        let capture = taken(b"ok\xe2\x80", 1, 64);
        assert_eq!(capture.preview(64).head, "ok\u{fffd}");
        assert_eq!(capture.undecodable(), 2);
    }
}
