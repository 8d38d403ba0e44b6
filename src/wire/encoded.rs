//! A `tool.result` as JSON: whole, or with one long text that is spelled piece by piece while it is written.
//!
//! A result of many megabytes would otherwise stand in memory twice, and each fresh page costs as much as spelling what
//! goes into it.

use std::sync::Arc;

use bytes::Bytes;

use super::escape::{escaped_len, fill, inside_string, string};
use super::{ContentBlock, ImageSource, ToolResult};

/// Room beside the texts: envelope, ids, details.
const FRAME_BYTES: usize = 4 * 1024;

/// A result that can be written.
#[derive(Debug, Clone)]
pub enum Encoded {
    /// As it is.
    Whole(Bytes),
    /// All but its longest text.
    Long(Arc<Long>),
}

/// A result whose longest text is spelled when it is written.
#[derive(Debug)]
pub struct Long {
    before: Bytes,
    text: String,
    after: Bytes,
    len: usize,
}

/// The spelling of a result but for its longest text; its length is known before anything large is written.
#[derive(Debug)]
pub struct Encoder {
    before: String,
    after: String,
    /// Which block has the text that is missing, and what that text will take.
    gap: Option<(usize, usize)>,
}

impl Encoder {
    /// Spells a result, but for its longest text where that has more than `long` bytes.
    ///
    /// # Errors
    /// None for the types of this room, whose map keys are all strings.
    pub fn of(result: &ToolResult, long: usize) -> Result<Self, serde_json::Error> {
        let ToolResult {
            session_id,
            tool_call_id,
            outcome,
            is_error,
            content,
            error,
            details,
        } = result;
        let gap = longest_text(content).filter(|(_, text)| text.len() > long);
        let gap_bytes = gap.map_or(0, |(_, text)| text.len());
        let texts = content.iter().map(payload).sum::<usize>() - gap_bytes;
        // An eighth more is what source code takes; a text that needs more grows.
        let mut out = String::with_capacity(texts + texts / 8 + FRAME_BYTES);
        let mut before = None;
        out.push_str(r#"{"jsonrpc":"2.0","method":"tool.result","params":{"session_id":"#);
        string(&mut out, session_id.as_str());
        out.push_str(r#","tool_call_id":"#);
        string(&mut out, tool_call_id.as_str());
        out.push_str(r#","outcome":"#);
        out.push_str(&serde_json::to_string(outcome)?);
        out.push_str(r#","is_error":"#);
        out.push_str(if *is_error { "true" } else { "false" });
        out.push_str(r#","content":["#);
        for (at, block) in content.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            if gap.is_some_and(|(gap, _)| gap == at) {
                out.push_str(r#"{"type":"text","text":""#);
                before = Some(std::mem::take(&mut out));
                out.push_str(r#""}"#);
            } else {
                push_block(&mut out, block);
            }
        }
        out.push(']');
        if let Some(error) = error {
            out.push_str(r#","error":"#);
            out.push_str(&serde_json::to_string(error)?);
        }
        if let Some(details) = details {
            out.push_str(r#","details":"#);
            out.push_str(&serde_json::to_string(details)?);
        }
        out.push_str("}}");
        Ok(Self {
            before: before.unwrap_or_default(),
            after: out,
            gap: gap.map(|(at, text)| (at, escaped_len(text.as_bytes()))),
        })
    }

    /// Returns the length of the whole.
    pub fn size(&self) -> usize {
        self.before.len() + self.after.len() + self.gap.map_or(0, |(_, len)| len)
    }

    /// Takes the text that is missing out of the result that was spelled.
    pub fn finish(self, mut result: ToolResult) -> Encoded {
        let len = self.size();
        let block = self.gap.and_then(|(at, _)| result.content.get_mut(at));
        let Some(ContentBlock::Text { text }) = block else {
            let mut whole = self.after;
            // It may be kept for long, and is counted by its length.
            whole.shrink_to_fit();
            return Encoded::Whole(whole.into());
        };
        Encoded::Long(Arc::new(Long {
            before: self.before.into(),
            text: std::mem::take(text),
            after: self.after.into(),
            len,
        }))
    }
}

impl Encoded {
    /// Returns the bytes of the message.
    pub fn size(&self) -> usize {
        match self {
            Self::Whole(text) => text.len(),
            Self::Long(long) => long.len,
        }
    }

    /// Returns the message where it is there as it is.
    pub fn whole(&self) -> Option<&[u8]> {
        match self {
            Self::Whole(text) => Some(text),
            Self::Long(_) => None,
        }
    }

    /// Returns the bytes of memory that it holds.
    pub fn held(&self) -> usize {
        match self {
            Self::Whole(text) => text.len(),
            Self::Long(long) => long.before.len() + long.text.len() + long.after.len(),
        }
    }

    /// Returns the message in pieces of at most `size` bytes.
    pub fn pieces(self, size: usize) -> Pieces {
        let (first, long) = match self {
            Self::Whole(text) => (text, None),
            Self::Long(long) => (long.before.clone(), Some((long, 0))),
        };
        Pieces { size, first, long }
    }
}

/// The pieces of a spelled result, made one by one.
#[derive(Debug)]
pub struct Pieces {
    size: usize,
    /// What comes next as it is.
    first: Bytes,
    /// What follows it, from this byte of its text on.
    long: Option<(Arc<Long>, usize)>,
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if !self.first.is_empty() {
            let end = self.first.len().min(self.size);
            return Some(self.first.split_to(end));
        }
        let (long, at) = self.long.take()?;
        let rest = long.text.get(at..).unwrap_or_default();
        if rest.is_empty() {
            self.first = long.after.clone();
            return self.next();
        }
        let mut piece = String::with_capacity(self.size);
        let mut left = fill(&mut piece, rest, self.size).len();
        if left == rest.len() {
            // Smaller than one character can be: the size is then not to be kept.
            let first = rest.chars().next().map_or(rest.len(), char::len_utf8);
            inside_string(&mut piece, rest.get(..first).unwrap_or(rest));
            left -= first;
        }
        self.long = Some((Arc::clone(&long), at + rest.len() - left));
        Some(piece.into())
    }
}

fn longest_text(content: &[ContentBlock]) -> Option<(usize, &str)> {
    let texts = content
        .iter()
        .enumerate()
        .filter_map(|(at, block)| match block {
            ContentBlock::Text { text } => Some((at, text.as_str())),
            ContentBlock::Image { .. } => None,
        });
    texts.max_by_key(|(_, text)| text.len())
}

fn payload(block: &ContentBlock) -> usize {
    match block {
        ContentBlock::Text { text } => text.len(),
        ContentBlock::Image {
            source: ImageSource::Base64 { data, .. },
        } => data.len(),
    }
}

fn push_block(out: &mut String, block: &ContentBlock) {
    match block {
        ContentBlock::Text { text } => {
            out.push_str(r#"{"type":"text","text":"#);
            string(out, text);
            out.push('}');
        }
        ContentBlock::Image {
            source: ImageSource::Base64 { media_type, data },
        } => {
            out.push_str(r#"{"type":"image","source":{"type":"base64","media_type":"#);
            string(out, media_type);
            out.push_str(r#","data":"#);
            string(out, data);
            out.push_str("}}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::wire::{ErrorBody, ErrorCode, Outcome, SessionId, ToHarness, ToolCallId, encode};

    #[track_caller]
    fn check(texts: Vec<String>, image: bool, failed: bool) {
        let mut content: Vec<_> = texts.into_iter().map(ContentBlock::text).collect();
        if image {
            let (media_type, data) = ("image/png".to_owned(), "QUJD".to_owned());
            let source = ImageSource::Base64 { media_type, data };
            content.push(ContentBlock::Image { source });
        }
        let error = failed.then(|| ErrorBody {
            code: ErrorCode::Overloaded,
            message: "a \"reason\"".to_owned(),
            retry_after_ms: Some(7),
        });
        let whole = ToolResult {
            session_id: SessionId::new("s \"é\\").unwrap(),
            tool_call_id: ToolCallId::new("c-1").unwrap(),
            outcome: if failed {
                Outcome::TimedOut
            } else {
                Outcome::Succeeded
            },
            is_error: failed,
            content,
            error,
            details: (!failed).then(|| json!({"path": "a\n", "lines": [1, null, 2.5]})),
        };
        let theirs = encode(&ToHarness::from(whole.clone())).unwrap();
        for (long, size) in [(usize::MAX, 7), (0, 64), (8, 100)] {
            let encoder = Encoder::of(&whole, long).unwrap();
            assert_eq!(encoder.size(), theirs.len(), "{theirs}");
            let message = encoder.finish(whole.clone());
            assert_eq!(message.size(), theirs.len());
            let pieces: Vec<Bytes> = message.pieces(size).collect();
            assert!(
                pieces.iter().all(|piece| (1..=size).contains(&piece.len())),
                "{pieces:?}"
            );
            assert_eq!(pieces.concat(), theirs.as_bytes());
        }
    }

    #[test]
    fn every_byte_in_every_place_of_a_word_is_spelled_as_serde_json_does() {
        for code in (0..0x100).chain([0x7ff, 0x2028, 0xfffd, 0x1_f600]) {
            let Some(char) = char::from_u32(code) else {
                continue;
            };
            for before in (0..17).chain([31, 32, 40, 70]) {
                for after in [0, 1, 8] {
                    let text = format!("{}{char}{}", "x".repeat(before), "é".repeat(after));
                    check(vec![text], false, false);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_result_is_spelled_as_serde_json_does(
            texts in prop::collection::vec("[\\x00-\\x7f\u{80}-\u{2ff}\"\\\\\n]{0,40}|.{0,40}", 0..4),
            image: bool,
            failed: bool,
        ) {
            check(texts, image, failed);
        }
    }
}
