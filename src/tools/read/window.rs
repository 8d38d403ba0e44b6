//! A window of lines, taken from blocks that pass by.
//!
//! Only the window is kept. A line that is too long is clipped at a character boundary and keeps its line end; a line
//! that would exceed the window's bytes is left for the next one.

use bstr::ByteSlice as _;
use simdutf8::basic::from_utf8;

use crate::wire::{Text, TextBuilder};

/// Bytes set aside for a line; a guess that only saves copying.
const USUAL_LINE: usize = 128;

/// What a window may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// First line, from 1.
    pub(super) offset: u64,
    /// Lines.
    pub(super) lines: u64,
    /// Bytes of the file.
    pub(super) bytes: usize,
    /// Bytes of the window in the message.
    pub(super) encoded: usize,
    /// Bytes of one line.
    pub(super) line_bytes: usize,
}

/// A line that was clipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clip {
    pub(super) line: u64,
    pub(super) bytes: u64,
    pub(super) shown: usize,
}

/// What was found in the lines of a window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found {
    /// Bytes that are not UTF-8; they are shown as U+FFFD.
    pub(super) no_text: bool,
    /// A NUL.
    pub(super) nul: bool,
}

/// Takes a window from blocks.
#[derive(Debug)]
pub(super) struct Window {
    bounds: Bounds,
    /// The lines taken.
    text: TextBuilder,
    /// How many they are, and how many bytes of the file.
    pub(super) taken: u64,
    pub(super) bytes: usize,
    pub(super) clips: Vec<Clip>,
    pub(super) found: Found,
    /// Line breaks that passed.
    breaks: u64,
    /// Whether what passed ends inside a line.
    inside_line: bool,
    /// What was taken of the current line, and its true length so far.
    line: Vec<u8>,
    line_len: u64,
    /// Whether no more lines are taken.
    pub(super) full: bool,
    /// Whether anything followed the last line taken.
    pub(super) more: bool,
}

impl Window {
    /// Makes an empty window; `size` is about what will pass.
    pub(super) fn new(bounds: Bounds, size: u64) -> Self {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let lines = usize::try_from(bounds.lines).unwrap_or(usize::MAX);
        let room = size
            .min(bounds.bytes)
            .min(bounds.encoded)
            .min(lines.saturating_mul(USUAL_LINE));
        Self {
            bounds,
            text: TextBuilder::with_capacity(room),
            taken: 0,
            bytes: 0,
            clips: Vec::new(),
            found: Found::default(),
            breaks: 0,
            inside_line: false,
            line: Vec::new(),
            line_len: 0,
            full: false,
            more: false,
        }
    }

    /// Lets a block pass.
    pub(super) fn pass(&mut self, block: &[u8]) {
        let Some(last) = block.last() else { return };
        self.inside_line = *last != b'\n';
        if !self.take_whole(block) {
            self.take_lines(block);
        }
    }

    /// Ends the window at the end of the file.
    pub(super) fn end(&mut self) {
        if !self.full && self.line_len > 0 {
            self.finish_line(false);
        }
    }

    /// Returns how many lines have passed; a last one without line break counts.
    pub(super) fn lines_seen(&self) -> u64 {
        self.breaks + u64::from(self.inside_line)
    }

    /// Returns whether nothing that passed is missing, where it began with the first line.
    pub(super) fn is_whole(&self) -> bool {
        !self.more && self.clips.is_empty()
    }

    /// Returns the lines that were taken.
    pub(super) fn take_text(&mut self) -> Text {
        std::mem::replace(&mut self.text, TextBuilder::with_capacity(0)).finish()
    }

    /// Takes the lines that end in a block at one time, where they are text and no bound comes near.
    fn take_whole(&mut self, block: &[u8]) -> bool {
        let first = memchr::memchr(b'\n', block).unwrap_or(block.len());
        let line_bytes = self.bounds.line_bytes;
        if self.full
            || self.breaks + 1 < self.bounds.offset
            || block.len() > line_bytes
            || self.line.len() + first > line_bytes
            || self.line_len > self.line.len() as u64
            || self.bytes + self.line.len() + block.len() > self.bounds.bytes
            || memchr::memchr(0, block).is_some()
        {
            return false;
        }
        let (Ok(begun), Ok(text)) = (from_utf8(&self.line), from_utf8(block)) else {
            return false;
        };
        let lines = count(block);
        if self.taken + lines >= self.bounds.lines {
            return false;
        }
        let Some((ended, tail)) = text.rsplit_once('\n') else {
            self.line.extend_from_slice(block);
            self.line_len = self.line.len() as u64;
            return true;
        };
        let before = self.text.wire_len();
        self.text.push(begun);
        self.text.push(ended);
        self.text.push("\n");
        if self.text.wire_len() > self.bounds.encoded {
            self.text.truncate(before);
            return false;
        }
        self.bytes += self.line.len() + ended.len() + 1;
        self.taken += lines;
        self.breaks += lines;
        self.line.clear();
        self.line.extend_from_slice(tail.as_bytes());
        self.line_len = tail.len() as u64;
        true
    }

    /// Lets a block pass line by line.
    fn take_lines(&mut self, block: &[u8]) {
        let mut rest = self.skip(block);
        while !self.full && !rest.is_empty() {
            rest = self.take_line(rest);
        }
        if !rest.is_empty() {
            self.more = true;
            self.breaks += count(rest);
        }
    }

    /// Skips the lines before the window.
    fn skip<'b>(&mut self, block: &'b [u8]) -> &'b [u8] {
        let before = (self.bounds.offset - 1).saturating_sub(self.breaks);
        if before == 0 {
            return block;
        }
        let passed = count(block);
        if passed < before {
            self.breaks += passed;
            return &[];
        }
        let last = usize::try_from(before - 1).unwrap_or(usize::MAX);
        let end = memchr::memchr_iter(b'\n', block).nth(last);
        self.breaks += before;
        end.and_then(|end| block.get(end + 1..)).unwrap_or_default()
    }

    /// Takes what a block has of one line; returns what follows.
    fn take_line<'b>(&mut self, block: &'b [u8]) -> &'b [u8] {
        let end = memchr::memchr(b'\n', block);
        let (piece, rest) = block
            .split_at_checked(end.unwrap_or(block.len()))
            .unwrap_or((block, &[]));
        let room = self.bounds.line_bytes.saturating_sub(self.line.len());
        self.line
            .extend_from_slice(piece.get(..room).unwrap_or(piece));
        self.line_len += piece.len() as u64;
        if end.is_some() {
            self.finish_line(true);
            self.breaks += 1;
            return rest.get(1..).unwrap_or_default();
        }
        rest
    }

    fn finish_line(&mut self, has_break: bool) {
        let line = std::mem::take(&mut self.line);
        let line_len = std::mem::take(&mut self.line_len);
        let ending = usize::from(has_break);
        let mut shown = if line.len() as u64 == line_len {
            line.len()
        } else {
            char_boundary(&line, line.len())
        };
        if !self.add_line(&line, shown, has_break) {
            if self.taken > 0 {
                self.full = true;
                self.more = true;
                return;
            }
            // A window without a line would never get anywhere.
            let bytes = self.bounds.bytes.saturating_sub(ending);
            shown = self.fitting(line.get(..bytes).unwrap_or(&line));
            self.add_line(&line, shown, has_break);
        }
        if (shown as u64) < line_len {
            self.clips.push(Clip {
                line: self.taken + self.bounds.offset,
                bytes: line_len,
                shown,
            });
        }
        self.taken += 1;
        self.full = self.taken == self.bounds.lines;
    }

    /// Adds the first bytes of a line where the bounds allow it; returns whether they do.
    fn add_line(&mut self, line: &[u8], shown: usize, has_break: bool) -> bool {
        let line = line.get(..shown).unwrap_or(line);
        let bytes = self.bytes + line.len() + usize::from(has_break);
        let text = line.to_str_lossy();
        let before = self.text.wire_len();
        self.text.push(&text);
        if has_break {
            self.text.push("\n");
        }
        if bytes > self.bounds.bytes || self.text.wire_len() > self.bounds.encoded {
            self.text.truncate(before);
            return false;
        }
        self.bytes = bytes;
        self.found.no_text |= matches!(text, std::borrow::Cow::Owned(_));
        self.found.nul |= memchr::memchr(0, line).is_some();
        true
    }

    /// Returns how many of the first bytes of a line fit an empty window, with a line break.
    fn fitting(&self, line: &[u8]) -> usize {
        const BREAK: usize = 2;
        const REPLACEMENT: usize = char::REPLACEMENT_CHARACTER.len_utf8();
        let mut room = self.bounds.encoded.saturating_sub(BREAK);
        let mut fits = 0;
        let line = line.get(..char_boundary(line, line.len())).unwrap_or(line);
        for chunk in line.utf8_chunks() {
            let valid = Text::from(chunk.valid());
            let replaced = if chunk.invalid().is_empty() {
                0
            } else {
                REPLACEMENT
            };
            let Some(left) = room.checked_sub(valid.wire_len()) else {
                return fits + valid.cut(room).plain().len();
            };
            fits += chunk.valid().len();
            let Some(left) = left.checked_sub(replaced) else {
                return fits;
            };
            fits += chunk.invalid().len();
            room = left;
        }
        fits
    }
}

fn count(block: &[u8]) -> u64 {
    bytecount::count(block, b'\n') as u64
}

/// Returns `at`, or the begin of the character that a cut there would split.
pub(super) fn char_boundary(bytes: &[u8], at: usize) -> usize {
    let Some(kept) = bytes.get(..at) else {
        return bytes.len();
    };
    let tail_start = at.saturating_sub(3);
    let lead = kept
        .get(tail_start..)
        .unwrap_or_default()
        .iter()
        .rposition(|byte| byte & 0xc0 != 0x80)
        .map(|position| tail_start + position);
    let Some(lead) = lead else { return at };
    let wanted = match kept.get(lead) {
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        _ => 1,
    };
    if lead + wanted > at { lead } else { at }
}
