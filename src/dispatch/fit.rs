//! Results as they are written: spelled once, and cut to what their harness takes.

use bytes::Bytes;

use super::answer::too_large;
use crate::wire::{ContentBlock, Encoded, Encoder, ToolResult, escaped_len, fitting};

/// Room that a cut leaves for the note about it.
const NOTE_BYTES: usize = 256;

/// Spells a result whole.
pub(super) fn spell(result: ToolResult) -> Encoded {
    spell_to_fit(result, usize::MAX, usize::MAX)
}

/// Spells a result within `max` bytes: its longest text is cut, with a note, as far as it must be. A text of more than
/// `long` bytes is spelled only when it is written.
pub(super) fn spell_to_fit(mut result: ToolResult, max: usize, long: usize) -> Encoded {
    let encoder = Encoder::of(&result, long).and_then(|encoder| {
        let size = encoder.size();
        if size <= max {
            return Ok(encoder);
        }
        cut(&mut result, size, max);
        Encoder::of(&result, long)
    });
    match encoder {
        Ok(encoder) if encoder.size() <= max => encoder.finish(result),
        Ok(_) => {
            let why = "it does not fit into the largest message that this harness takes";
            spell(too_large(result.session_id, result.tool_call_id, why))
        }
        Err(error) => {
            tracing::error!(%error, "a result could not be encoded");
            Encoded::Whole(Bytes::new())
        }
    }
}

/// Cuts the longest text of a result of `size` bytes, and says so.
fn cut(result: &mut ToolResult, size: usize, max: usize) {
    let texts = result.content.iter_mut().filter_map(|block| match block {
        ContentBlock::Text { text } => Some(text),
        ContentBlock::Image { .. } => None,
    });
    let Some(text) = texts.max_by_key(|text| text.len()) else {
        return;
    };
    let whole = text.len();
    let others = size - escaped_len(text.as_bytes());
    let room = max.saturating_sub(others + NOTE_BYTES);
    text.truncate(text.floor_char_boundary(fitting(text.as_bytes(), room)));
    let kept = text.len();
    if text.is_empty() {
        text.push_str("(cut)");
    }
    result.content.push(ContentBlock::text(format!(
        "(the text was cut after {kept} of {whole} bytes, because this harness takes messages of at most {max} bytes)"
    )));
}
