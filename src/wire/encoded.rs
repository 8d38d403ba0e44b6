//! A `tool.result` as JSON, in one piece or around one long text.

use bytes::Bytes;
use serde::Serialize;

use super::{ContentBlock, ImageSource, Text, ToolResult};

/// Room beside the texts: envelope, ids, details.
const FRAME_BYTES: usize = 1024;

/// What is larger is not kept for long, and costs more to copy.
const COPIED: usize = 64 * 1024;

/// A result that can be written. Cloning is cheap.
#[derive(Debug, Clone)]
pub enum Encoded {
    /// In one piece.
    Whole(Bytes),
    /// What comes before its longest text, the text, and what follows it: a copy of many megabytes less.
    Long(Box<[Bytes; 3]>),
}

impl Encoded {
    /// Spells a result; its longest text stays by itself where that takes more than `long` bytes.
    ///
    /// # Errors
    /// None for the types of this room, whose map keys are all strings.
    pub fn of<D: Serialize>(
        result: &ToolResult<D>,
        long: usize,
    ) -> Result<Self, serde_json::Error> {
        let ToolResult {
            session_id,
            tool_call_id,
            outcome,
            is_error,
            content,
            error,
            details,
        } = result;
        let apart = longest_text(content).filter(|(_, text)| text.wire_len() > long);
        let apart_bytes = apart.map_or(0, |(_, text)| text.wire_len());
        let payload = content.iter().map(payload).sum::<usize>() - apart_bytes;
        let mut out = Vec::with_capacity(payload + FRAME_BYTES);
        let mut before = None;
        out.extend_from_slice(
            br#"{"jsonrpc":"2.0","method":"tool.result","params":{"session_id":"#,
        );
        serde_json::to_writer(&mut out, session_id)?;
        out.extend_from_slice(br#","tool_call_id":"#);
        serde_json::to_writer(&mut out, tool_call_id)?;
        out.extend_from_slice(br#","outcome":"#);
        serde_json::to_writer(&mut out, outcome)?;
        out.extend_from_slice(br#","is_error":"#);
        serde_json::to_writer(&mut out, is_error)?;
        out.extend_from_slice(br#","content":["#);
        for (at, block) in content.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            if apart.is_some_and(|(apart, _)| apart == at) {
                out.extend_from_slice(br#"{"type":"text","text":""#);
                before = Some(std::mem::take(&mut out));
                out.extend_from_slice(br#""}"#);
            } else {
                push_block(&mut out, block)?;
            }
        }
        out.push(b']');
        if let Some(error) = error {
            out.extend_from_slice(br#","error":"#);
            serde_json::to_writer(&mut out, error)?;
        }
        if let Some(details) = details {
            out.extend_from_slice(br#","details":"#);
            serde_json::to_writer(&mut out, details)?;
        }
        out.extend_from_slice(b"}}");
        Ok(match (before, apart) {
            (Some(before), Some((_, text))) => Self::Long(Box::new([
                compact(before),
                text.spelled().clone(),
                compact(out),
            ])),
            _ => Self::Whole(compact(out)),
        })
    }

    /// Returns the bytes of the message, which are those of memory that it holds.
    pub fn size(&self) -> usize {
        match self {
            Self::Whole(text) => text.len(),
            Self::Long(parts) => parts.iter().map(Bytes::len).sum(),
        }
    }

    /// Returns the message where it is in one piece.
    pub fn whole(&self) -> Option<&[u8]> {
        match self {
            Self::Whole(text) => Some(text),
            Self::Long(_) => None,
        }
    }
}

/// A message in fragments of at most so many bytes. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Fragments {
    size: usize,
    parts: [Bytes; 3],
    begun: bool,
}

/// A fragment of a message.
#[derive(Debug)]
pub struct Fragment {
    /// What it holds.
    pub bytes: Bytes,
    /// Whether the message begins with it.
    pub is_first: bool,
    /// Whether the message ends with it.
    pub is_last: bool,
}

impl Fragments {
    /// Takes a message apart.
    pub fn of(message: Encoded, size: usize) -> Self {
        let parts = match message {
            Encoded::Whole(text) => [text, Bytes::new(), Bytes::new()],
            Encoded::Long(parts) => *parts,
        };
        Self {
            size,
            parts,
            begun: false,
        }
    }
}

impl Iterator for Fragments {
    type Item = Fragment;

    fn next(&mut self) -> Option<Fragment> {
        let part = self.parts.iter_mut().find(|part| !part.is_empty())?;
        let end = part.len().min(self.size);
        Some(Fragment {
            bytes: part.split_to(end),
            is_first: !std::mem::replace(&mut self.begun, true),
            is_last: self.parts.iter().all(Bytes::is_empty),
        })
    }
}

/// Returns what may be kept for long in a place of its own. Cut to its length where it was put together, it would leave a
/// hole behind it that the next one does not fit into: with tens of thousands kept, a quarter of all memory.
fn compact(text: Vec<u8>) -> Bytes {
    if text.len() > COPIED {
        return text.into();
    }
    Bytes::copy_from_slice(&text)
}

fn longest_text(content: &[ContentBlock]) -> Option<(usize, &Text)> {
    let texts = content
        .iter()
        .enumerate()
        .filter_map(|(at, block)| match block {
            ContentBlock::Text { text } => Some((at, text)),
            ContentBlock::Image { .. } => None,
        });
    texts.max_by_key(|(_, text)| text.wire_len())
}

fn payload(block: &ContentBlock) -> usize {
    match block {
        ContentBlock::Text { text } => text.wire_len(),
        ContentBlock::Image {
            source: ImageSource::Base64 { data, .. },
        } => data.len(),
    }
}

fn push_block(out: &mut Vec<u8>, block: &ContentBlock) -> Result<(), serde_json::Error> {
    match block {
        ContentBlock::Text { text } => {
            out.extend_from_slice(br#"{"type":"text","text":""#);
            out.extend_from_slice(text.spelled());
            out.extend_from_slice(br#""}"#);
        }
        ContentBlock::Image {
            source: ImageSource::Base64 { media_type, data },
        } => {
            out.extend_from_slice(br#"{"type":"image","source":{"type":"base64","media_type":"#);
            serde_json::to_writer(&mut *out, media_type)?;
            // Base64 has nothing in it that is spelled another way.
            out.extend_from_slice(br#","data":""#);
            out.extend_from_slice(data.as_bytes());
            out.extend_from_slice(br#""}}"#);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::wire::{ErrorBody, ErrorCode, Outcome, SessionId, ToHarness, ToolCallId, encode};

    #[track_caller]
    fn check(texts: Vec<String>, image: bool, failed: bool) {
        for text in &texts {
            let spelled = [b"\"", &**Text::from(text).spelled(), b"\""].concat();
            assert_eq!(spelled, serde_json::to_vec(text).unwrap(), "{text:?}");
        }
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
            let message = Encoded::of(&whole, long).unwrap();
            assert_eq!(message.size(), theirs.len(), "{theirs}");
            let fragments: Vec<Fragment> = Fragments::of(message, size).collect();
            let ends = fragments.iter().map(|one| (one.is_first, one.is_last));
            let last = fragments.len() - 1;
            assert!(
                ends.enumerate()
                    .all(|(at, ends)| ends == (at == 0, at == last))
            );
            let pieces: Vec<Bytes> = fragments.into_iter().map(|one| one.bytes).collect();
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
