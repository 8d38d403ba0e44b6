//! Texts of results, held as they stand inside a JSON string.
//!
//! A text is spelled piece by piece as a tool puts it together, while each piece is in the processor's caches: many
//! megabytes that are looked at once more for their length, and again to be spelled, are fetched from memory each time.
//! What comes out must be what `serde_json` would write: the tests of [`encoded`](super::encoded) hold the two side by side.

use std::fmt;

use bytes::Bytes;
use json_escape_simd::escape_into;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest spelling of one byte.
const LONGEST_SPELLING: usize = 6;

/// Text that is spelled at one time: the library makes room for the longest spelling of all of it.
const STEP: usize = 8 * 1024;

/// A text as it stands inside a JSON string. Cloning is cheap.
#[derive(Clone, PartialEq, Eq)]
pub struct Text(Bytes);

/// A text that is being put together.
#[derive(Debug)]
pub struct TextBuilder(Vec<u8>);

impl TextBuilder {
    /// Makes an empty one with room for a text of so many bytes and what spelling usually adds to it.
    pub fn with_capacity(bytes: usize) -> Self {
        let slack = LONGEST_SPELLING * bytes.min(STEP);
        let mut spelled = Vec::with_capacity(bytes + bytes / 16 + slack);
        // The library puts quotes around what it spells, the first one in the place of the byte before.
        spelled.push(b'"');
        Self(spelled)
    }

    /// Adds to it.
    pub fn push(&mut self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.floor_char_boundary(STEP));
            let Some(last) = self.0.pop() else { return };
            let at = self.0.len();
            escape_into(now, &mut self.0);
            if let Some(quote) = self.0.get_mut(at) {
                *quote = last;
            }
            self.0.pop();
            rest = later;
        }
    }

    /// Returns the bytes that it takes inside a JSON string.
    pub fn wire_len(&self) -> usize {
        self.0.len() - 1
    }

    /// Takes away what was added since it took so many bytes.
    pub fn truncate(&mut self, wire_len: usize) {
        self.0.truncate(wire_len + 1);
    }

    /// Ends it.
    pub fn finish(mut self) -> Text {
        // It may be kept for long, and is counted by its length and a quarter more. Cut to that, what is large would go back
        // to the kernel when it is done with, and the next one would pay for fresh pages.
        if self.0.capacity() - self.0.len() > self.0.len() / 8 {
            self.0.shrink_to_fit();
        }
        Text(Bytes::from(self.0).slice(1..))
    }
}

impl Text {
    /// Returns the bytes that it takes inside a JSON string.
    pub fn wire_len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns it as it stands inside a JSON string.
    pub(super) fn spelled(&self) -> &Bytes {
        &self.0
    }

    /// Returns it as it was before it was spelled.
    pub fn plain(&self) -> String {
        let mut quoted = Vec::with_capacity(self.0.len() + 2);
        quoted.push(b'"');
        quoted.extend_from_slice(&self.0);
        quoted.push(b'"');
        serde_json::from_slice(&quoted).unwrap_or_default()
    }

    /// Returns as much of its beginning as takes at most `room` bytes inside a JSON string.
    #[must_use]
    pub fn cut(&self, room: usize) -> Self {
        let mut end = 0;
        while let Some(first) = self.0.get(end) {
            let len = match (first, self.0.get(end + 1)) {
                (b'\\', Some(b'u')) => LONGEST_SPELLING,
                (b'\\' | 0xc0..=0xdf, _) => 2,
                (0xe0..=0xef, _) => 3,
                (0xf0..=0xff, _) => 4,
                _ => 1,
            };
            if end + len > room {
                break;
            }
            end += len;
        }
        Self(self.0.slice(..end.min(self.0.len())))
    }
}

impl<T: AsRef<str>> From<T> for Text {
    fn from(text: T) -> Self {
        let mut builder = TextBuilder::with_capacity(text.as_ref().len());
        builder.push(text.as_ref());
        builder.finish()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plain())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.plain(), f)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.plain())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_that_was_cut_is_the_longest_beginning_that_fits(
            text in "[a-c\"\\\\\n\\x00-\\x1f\\x7fé€😀]{0,20}",
            room in 0..60_usize,
        ) {
            let cut = Text::from(&text).cut(room).plain();
            let fits = |end: usize| Text::from(text.get(..end).unwrap()).wire_len() <= room;
            let ends = (0..=text.len()).filter(|end| text.is_char_boundary(*end));
            let longest = ends.filter(|end| fits(*end)).max();
            prop_assert_eq!(Some(cut.as_str()), longest.and_then(|end| text.get(..end)));
        }

        #[test]
        fn pieces_put_together_and_taken_away_make_the_same_text(
            pieces in prop::collection::vec("[a\"\n\\x01é😀]{0,5}", 0..6),
        ) {
            let mut builder = TextBuilder::with_capacity(0);
            for piece in &pieces {
                let before = builder.wire_len();
                builder.push("gone\n");
                builder.truncate(before);
                builder.push(piece);
            }
            let text = builder.finish();
            prop_assert_eq!(text.plain(), pieces.concat());
            prop_assert_eq!(text, Text::from(pieces.concat()));
        }
    }
}
