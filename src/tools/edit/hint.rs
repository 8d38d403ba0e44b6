//! Why a text that was not found may have been thought to be there.
//!
//! A hint only: nothing is ever replaced on the strength of it, and it costs a bounded time.

use memchr::memmem;

/// Larger files get no hint beyond the general one.
const MAX_FILE: usize = 1024 * 1024;

/// Returns a fragment that tells what to do.
pub(super) fn hint(file: &[u8], text: &str) -> String {
    let general = "read the file and copy the text exactly as it is there";
    if file.is_empty() {
        return "the file is empty; use write to fill it".to_owned();
    }
    if file.len() > MAX_FILE || text.len() > MAX_FILE {
        return general.to_owned();
    }
    let (flat, origins) = flatten(file);
    let at = |text: &[u8]| {
        let (wanted, _) = flatten(text);
        if wanted.iter().all(|byte| *byte == b' ') {
            return None;
        }
        let mut at = memmem::find(&flat, &wanted)?;
        // A run of white space may begin at the end of the line before.
        if wanted.first() == Some(&b' ') {
            at += 1;
        }
        let before = file.get(..*origins.get(at)?)?;
        Some(bytecount::count(before, b'\n') + 1)
    };
    if let Some(line) = at(text.as_bytes()) {
        return format!(
            "it occurs at line {line} with other white space (blanks, tabs or line breaks); {general}"
        );
    }
    if let Some(plain) = without_numbers(text)
        && let Some(line) = at(plain.as_bytes())
    {
        return format!(
            "it begins its lines with numbers, as a display does, and without them it occurs at line {line}; leave the \
             numbers out"
        );
    }
    general.to_owned()
}

/// Makes one blank of each run of white space; tells where each byte came from.
fn flatten(text: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let mut flat = Vec::with_capacity(text.len());
    let mut origins = Vec::with_capacity(text.len());
    for (at, byte) in text.iter().enumerate() {
        let byte = if byte.is_ascii_whitespace() {
            b' '
        } else {
            *byte
        };
        if byte == b' ' && flat.last() == Some(&b' ') {
            continue;
        }
        flat.push(byte);
        origins.push(at);
    }
    (flat, origins)
}

/// Takes a line number off each line, where every line that is not blank has one.
fn without_numbers(text: &str) -> Option<String> {
    let mut plain = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        if trimmed.is_empty() {
            plain.push("");
            continue;
        }
        let rest = trimmed.trim_start_matches(|char: char| char.is_ascii_digit());
        if rest.len() == trimmed.len() {
            return None;
        }
        let mut chars = rest.chars();
        match chars.next() {
            Some(':' | '|' | '\t' | '→' | ' ' | '-') | None => plain.push(chars.as_str()),
            Some(_) => return None,
        }
    }
    Some(plain.join("\n"))
}
