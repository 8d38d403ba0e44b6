//! A `tool.result` as JSON in one pass over its texts.
//!
//! `serde_json` looks at each byte by itself, which costs more than a second for a gigabyte; here eight are looked at at
//! once. What comes out must be what `serde_json` would write: the tests hold the two side by side.

use super::{ContentBlock, ImageSource, ToolResult};

/// Room beside the texts: envelope, ids, details.
const FRAME_BYTES: usize = 4 * 1024;

/// Spells a result with its envelope.
///
/// # Errors
/// None for the types of this room, whose map keys are all strings.
pub(super) fn result(result: &ToolResult) -> Result<String, serde_json::Error> {
    let ToolResult {
        session_id,
        tool_call_id,
        outcome,
        is_error,
        content,
        error,
        details,
    } = result;
    let texts: usize = content.iter().map(payload).sum();
    // An eighth more is what source code takes; a text that needs more grows.
    let mut out = String::with_capacity(texts + texts / 8 + FRAME_BYTES);
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
        push_block(&mut out, block);
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
    Ok(out)
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

/// Appends a text as a JSON string.
fn string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = first_special(rest.as_bytes()) {
        // What is special is one byte of ASCII, so both cuts are between characters.
        let (plain, from) = rest.split_at_checked(at).unwrap_or((rest, ""));
        out.push_str(plain);
        let mut chars = from.chars();
        match chars.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some('\u{8}') => out.push_str("\\b"),
            Some('\u{c}') => out.push_str("\\f"),
            Some(control) => {
                const HEX: [char; 16] = [
                    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
                ];
                let code = u32::from(control);
                let digit = |digit: u32| HEX.get(digit as usize).copied().unwrap_or('0');
                out.push_str("\\u00");
                out.push(digit(code >> 4));
                out.push(digit(code & 0xf));
            }
            None => {}
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

/// Finds the first byte that a JSON string cannot hold as it is.
fn first_special(bytes: &[u8]) -> Option<usize> {
    let (chunks, _) = bytes.as_chunks::<32>();
    // Asked of all 32 without a way out between, so that the compiler can take many at a time.
    let is_plain =
        |chunk: &&[u8; 32]| chunk.iter().fold(0, |any, byte| any | is_special(*byte)) == 0;
    let plain = 32 * chunks.iter().take_while(is_plain).count();
    let rest = bytes.get(plain..).unwrap_or_default();
    let (words, rest) = rest.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let marks = special(u64::from_le_bytes(*word));
        if marks != 0 {
            return Some(plain + at * 8 + (marks.trailing_zeros() / 8) as usize);
        }
    }
    let found = rest.iter().position(|byte| is_special(*byte) != 0)?;
    Some(plain + words.len() * 8 + found)
}

/// One for a special byte, else zero: no short cuts, each would be a way out of the loop above.
fn is_special(byte: u8) -> u8 {
    u8::from(byte < 0x20) | u8::from(byte == b'"') | u8::from(byte == b'\\')
}

/// Marks the top bit of each special byte; above the first one, marks may be wrong.
///
/// From "Bit Twiddling Hacks" (hasless, haszero): a borrow can only run upwards, from a byte that is marked itself.
fn special(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let is_zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = is_zero(word ^ (ONES * 0x22));
    let backslash = is_zero(word ^ (ONES * 0x5c));
    (control | quote | backslash) & TOPS
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
        let ours = result(&whole).unwrap();
        assert_eq!(ours, encode(&ToHarness::from(whole)).unwrap());
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
