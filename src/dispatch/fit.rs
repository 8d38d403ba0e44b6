//! Results as bytes: encoded once, and cut to what their harness takes.

use bytes::Bytes;

use super::answer::too_large;
use crate::wire::{ContentBlock, ToolResult, encode_result};

pub(super) fn encode_whole(result: &ToolResult) -> Bytes {
    match encode_result(result) {
        Ok(mut text) => {
            // It may be kept for long, and is counted by its length.
            text.shrink_to_fit();
            text.into()
        }
        Err(error) => {
            tracing::error!(%error, "a result could not be encoded");
            Bytes::new()
        }
    }
}

/// Encodes a result within `max` bytes: its longest text is cut, with a note, as far as it must be.
pub(super) fn encode_to_fit(mut result: ToolResult, max: usize) -> Bytes {
    let mut encoded = encode_whole(&result);
    if encoded.len() <= max {
        return encoded;
    }
    if let Some((at, whole)) = take_longest_text(&mut result) {
        let mut keep = whole.len();
        // The limit is on the encoded form, where a byte takes one to six; each round measures that anew.
        while encoded.len() > max && keep > 0 {
            keep = whole.floor_char_boundary(scale(keep, max, encoded.len()).min(keep - 1));
            let kept = whole.get(..keep).unwrap_or_default();
            put_cut_text(&mut result, at, kept, whole.len(), max);
            encoded = encode_whole(&result);
        }
    }
    if encoded.len() > max {
        let why = "it does not fit into the largest message that this harness takes";
        return encode_whole(&too_large(result.session_id, result.tool_call_id, why));
    }
    encoded
}

/// Takes the longest text out of a result and leaves room for its cut form and the note.
fn take_longest_text(result: &mut ToolResult) -> Option<(usize, String)> {
    let length = |block: &ContentBlock| match block {
        ContentBlock::Text { text } => text.len(),
        ContentBlock::Image { .. } => 0,
    };
    let (at, _) = result
        .content
        .iter()
        .enumerate()
        .max_by_key(|(_, block)| length(block))?;
    let ContentBlock::Text { text } = result.content.get_mut(at)? else {
        return None;
    };
    let whole = std::mem::take(text);
    result.content.push(ContentBlock::text(""));
    Some((at, whole))
}

fn put_cut_text(result: &mut ToolResult, at: usize, kept: &str, whole: usize, max: usize) {
    let note = format!(
        "(the text was cut after {} of {whole} bytes, because this harness takes messages of at most {max} bytes)",
        kept.len()
    );
    if let Some(block) = result.content.get_mut(at) {
        *block = ContentBlock::text(if kept.is_empty() { "(cut)" } else { kept });
    }
    if let Some(block) = result.content.last_mut() {
        *block = ContentBlock::text(note);
    }
}

/// Returns a little less than `keep * max / size`.
fn scale(keep: usize, max: usize, size: usize) -> usize {
    let share = (keep as u128) * (max as u128) * 63 / 64 / (size.max(1) as u128);
    usize::try_from(share).unwrap_or(keep)
}
