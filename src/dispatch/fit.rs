//! Results as they are written: spelled once, and cut to what their harness takes.

use bytes::Bytes;

use super::answer::too_large;
use crate::wire::{ContentBlock, Details, Encoded, Text, ToolResult};

/// Room that a cut leaves for the note about it.
const NOTE_BYTES: usize = 256;

/// Spells a result whole.
pub(super) fn spell(result: ToolResult<Details>) -> Encoded {
    spell_to_fit(result, usize::MAX, usize::MAX)
}

/// Spells a result within `max` bytes: its longest text is cut, with a note, as far as it must be. A text of more than
/// `long` bytes stays by itself.
pub(super) fn spell_to_fit(mut result: ToolResult<Details>, max: usize, long: usize) -> Encoded {
    let encoded = Encoded::of(&result, long).and_then(|encoded| {
        let size = encoded.size();
        if size <= max {
            return Ok(encoded);
        }
        cut(&mut result, size, max);
        Encoded::of(&result, long)
    });
    match encoded {
        Ok(encoded) if encoded.size() <= max => encoded,
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
fn cut(result: &mut ToolResult<Details>, size: usize, max: usize) {
    let texts = result.content.iter_mut().filter_map(|block| match block {
        ContentBlock::Text { text } => Some(text),
        ContentBlock::Image { .. } => None,
    });
    let Some(text) = texts.max_by_key(|text| text.wire_len()) else {
        return;
    };
    let whole = text.plain().len();
    let others = size - text.wire_len();
    *text = text.cut(max.saturating_sub(others + NOTE_BYTES));
    let kept = text.plain().len();
    if text.is_empty() {
        *text = Text::from("(cut)");
    }
    result.content.push(ContentBlock::text(format!(
        "(the text was cut after {kept} of {whole} bytes, because this harness takes messages of at most {max} bytes)"
    )));
}
