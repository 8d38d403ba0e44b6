//! A window of lines, taken from blocks that pass by.
//!
//! Only the window is kept. A line that is too long is clipped at a character boundary and keeps its line end; a line
//! that would exceed the window's bytes is left for the next one.

use crate::wire::{escaped_len, fitting};

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
    /// Bytes of the window inside a JSON string.
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

/// Takes a window from blocks.
#[derive(Debug)]
pub(super) struct Window {
    bounds: Bounds,
    /// The lines taken, byte for byte.
    pub(super) out: Vec<u8>,
    /// How many they are.
    pub(super) taken: u64,
    pub(super) clips: Vec<Clip>,
    /// Line breaks that passed.
    breaks: u64,
    /// Whether what passed ends inside a line.
    inside_line: bool,
    /// Where in `out` the current line begins, and what `out` takes in JSON up to there, once that was counted.
    line_start: usize,
    start_encoded: Option<usize>,
    /// The current line's true length so far.
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
            // The reader asks for one byte more, to see the end.
            out: Vec::with_capacity(room.saturating_add(1)),
            taken: 0,
            clips: Vec::new(),
            breaks: 0,
            inside_line: false,
            line_start: 0,
            start_encoded: None,
            line_len: 0,
            full: false,
            more: false,
        }
    }

    /// Whether what passes next may be put at the end of `out` at once, and then [`absorbed`](Self::absorb).
    pub(super) fn takes_blocks(&self) -> bool {
        !self.full && self.breaks + 1 >= self.bounds.offset
    }

    /// Lets pass what stands in `out` from `start` on.
    pub(super) fn absorb(&mut self, start: usize) {
        let block = self.out.get(start..).unwrap_or_default();
        let Some(last) = block.last() else { return };
        let inside_line = *last != b'\n';
        if self.take_whole(start) {
            self.inside_line = inside_line;
        } else {
            let block = self.out.split_off(start);
            self.feed(&block);
        }
    }

    /// Lets a block pass.
    pub(super) fn pass(&mut self, block: &[u8]) {
        if self.takes_blocks() {
            let start = self.out.len();
            self.out.extend_from_slice(block);
            self.absorb(start);
        } else {
            self.feed(block);
        }
    }

    /// Lets a block pass, line by line.
    fn feed(&mut self, block: &[u8]) {
        let Some(last) = block.last() else { return };
        self.inside_line = *last != b'\n';
        let mut rest = self.skip(block);
        while !self.full && !rest.is_empty() {
            rest = self.take_line(rest);
        }
        if !rest.is_empty() {
            self.more = true;
            self.breaks += count(rest);
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

    /// Takes the block that stands in `out` from `start` on, where no bound comes near.
    fn take_whole(&mut self, start: usize) -> bool {
        let (before, block) = self.out.split_at_checked(start).unwrap_or_default();
        let inside = before.get(self.line_start..).unwrap_or_default();
        let first = memchr::memchr(b'\n', block).unwrap_or(block.len());
        let line_bytes = self.bounds.line_bytes;
        if block.len() > line_bytes
            || inside.len() + first > line_bytes
            || self.line_len > u64::try_from(inside.len()).unwrap_or(u64::MAX)
            || self.out.len() > self.bounds.bytes
        {
            return false;
        }
        let lines = count(block);
        let encoded = (!self.is_far())
            .then(|| self.start_encoded() + escaped_len(inside) + escaped_len(block));
        if encoded.is_some_and(|encoded| encoded > self.bounds.encoded)
            || self.taken + lines >= self.bounds.lines
        {
            return false;
        }
        self.taken += lines;
        self.breaks += lines;
        let Some(end) = memchr::memrchr(b'\n', block) else {
            self.line_len += u64::try_from(block.len()).unwrap_or(0);
            return true;
        };
        let tail = block.get(end + 1..).unwrap_or_default();
        self.line_len = u64::try_from(tail.len()).unwrap_or(0);
        self.start_encoded = encoded.map(|encoded| encoded - escaped_len(tail));
        self.line_start = start + end + 1;
        true
    }

    /// Whether the bound on encoded bytes is far even if each byte takes six: most windows need no count.
    fn is_far(&self) -> bool {
        self.out.len().saturating_add(2).saturating_mul(6) <= self.bounds.encoded
    }

    /// Returns what `out` takes in JSON up to the current line.
    fn start_encoded(&self) -> usize {
        self.start_encoded
            .unwrap_or_else(|| escaped_len(self.out.get(..self.line_start).unwrap_or_default()))
    }

    /// Takes what a block has of one line; returns what follows.
    fn take_line<'b>(&mut self, block: &'b [u8]) -> &'b [u8] {
        let end = memchr::memchr(b'\n', block);
        let (piece, rest) = block
            .split_at_checked(end.unwrap_or(block.len()))
            .unwrap_or((block, &[]));
        let have = self.out.len() - self.line_start;
        let room = self.bounds.line_bytes.saturating_sub(have);
        self.out
            .extend_from_slice(piece.get(..room).unwrap_or(piece));
        self.line_len += u64::try_from(piece.len()).unwrap_or(0);
        if end.is_some() {
            self.finish_line(true);
            self.breaks += 1;
            return rest.get(1..).unwrap_or_default();
        }
        rest
    }

    fn finish_line(&mut self, has_break: bool) {
        let line = self.taken + self.bounds.offset;
        let mut shown = self.out.len() - self.line_start;
        let mut clipped = u64::try_from(shown).is_ok_and(|shown| shown < self.line_len);
        let bytes = self.bounds.bytes.saturating_sub(self.line_start);
        let is_far = self.is_far();
        let start_encoded = if is_far { 0 } else { self.start_encoded() };
        let encoded = self.bounds.encoded.saturating_sub(start_encoded);
        let text = self.out.get(self.line_start..).unwrap_or_default();
        if shown + usize::from(has_break) > bytes || (!is_far && escaped_len(text) + 2 > encoded) {
            if self.taken > 0 {
                self.out.truncate(self.line_start);
                self.full = true;
                self.more = true;
                return;
            }
            // A window without a line would never get anywhere.
            shown = fitting(text, encoded.saturating_sub(2)).min(bytes.saturating_sub(1));
            clipped = true;
        }
        if clipped {
            shown = char_boundary(text, shown);
            self.out.truncate(self.line_start + shown);
            self.clips.push(Clip {
                line,
                bytes: self.line_len,
                shown,
            });
        }
        if has_break {
            self.out.push(b'\n');
        }
        self.taken += 1;
        let line = self.out.get(self.line_start..).unwrap_or_default();
        self.start_encoded = (!is_far).then(|| start_encoded + escaped_len(line));
        self.line_start = self.out.len();
        self.line_len = 0;
        self.full = self.taken == self.bounds.lines;
    }
}

fn count(block: &[u8]) -> u64 {
    u64::try_from(memchr::memchr_iter(b'\n', block).count()).unwrap_or(0)
}

/// Returns `at`, or the begin of the character that a cut there would split.
fn char_boundary(bytes: &[u8], at: usize) -> usize {
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
