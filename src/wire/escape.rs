//! Texts inside JSON strings, many bytes at a time.
//!
//! `serde_json` looks at each byte by itself, which costs more than a second for a gigabyte. What comes out must be what
//! `serde_json` would write: the tests of [`encoded`](super::encoded) hold the two side by side.

/// Appends a text as a JSON string.
pub(super) fn string(out: &mut String, text: &str) {
    out.push('"');
    inside_string(out, text);
    out.push('"');
}

/// Longest spelling of one character inside a JSON string.
const LONGEST: usize = 6;

/// Appends as much of a text as keeps `out` within `size` bytes, but for a few, as it stands inside a JSON string;
/// returns what is left.
pub(super) fn fill<'t>(out: &mut String, text: &'t str, size: usize) -> &'t str {
    let mut rest = text;
    loop {
        // Fits whatever it is; each turn fills a sixth of the room or more.
        let sure = size.saturating_sub(out.len()) / LONGEST;
        let (now, later) = rest.split_at(rest.floor_char_boundary(sure));
        if now.is_empty() {
            return rest;
        }
        inside_string(out, now);
        rest = later;
    }
}

/// Appends a text as it stands inside a JSON string.
pub(super) fn inside_string(out: &mut String, text: &str) {
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
}

/// Returns what bytes of UTF-8 take inside a JSON string.
pub fn escaped_len(bytes: &[u8]) -> usize {
    // Sums of 32 bytes fit a byte, so that the compiler can take many at a time.
    let (chunks, rest) = bytes.as_chunks::<32>();
    let sum = |bytes: &[u8]| {
        let sum = bytes
            .iter()
            .fold(0_u8, |sum, byte| sum.wrapping_add(cost(*byte)));
        usize::from(sum)
    };
    chunks.iter().map(|chunk| sum(chunk)).sum::<usize>() + sum(rest)
}

/// Returns how many of the first bytes take at most `room` inside a JSON string.
pub fn fitting(bytes: &[u8], room: usize) -> usize {
    const STEP: usize = 4 * 1024;
    let mut used = 0;
    let mut whole = 0;
    for step in bytes.chunks(STEP) {
        let len = escaped_len(step);
        if used + len > room {
            break;
        }
        used += len;
        whole += step.len();
    }
    let rest = bytes.get(whole..).unwrap_or_default();
    let more = rest.iter().take_while(|byte| {
        used += usize::from(cost(**byte));
        used <= room
    });
    whole + more.count()
}

fn cost(byte: u8) -> u8 {
    let control = if byte < 0x20 { 5_u8 } else { 0 };
    let short = if matches!(byte, b'\n' | b'\r' | b'\t' | 0x8 | 0xc) {
        4
    } else {
        0
    };
    let quoted = u8::from(matches!(byte, b'"' | b'\\'));
    // Never out of range, but a check for that in each step would keep them from being taken many at a time.
    control
        .wrapping_sub(short)
        .wrapping_add(quoted)
        .wrapping_add(1)
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
