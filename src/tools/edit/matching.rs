//! Where a text occurs in a file, its line breaks matching the file's, and what the file is after a replacement.
//!
//! Everything is bytes. A line break of the text (LF or CRLF) matches one of the file, whichever it is; nothing else is
//! tolerant. Time is linear in the file, whatever the text is.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem::{self, Finder};

use crate::stop::Stop;
use crate::workspace::Stopped;

/// Bytes searched between two looks at the stop signal.
const BLOCK: usize = 4 * 1024 * 1024;
/// Occurrences counted for a sentence; overlapping ones could be as many as bytes.
const MAX_COUNT: usize = 1_000;
/// Lines listed of several occurrences.
const MAX_LINES: usize = 10;

/// What a search came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The text occurs here, in the file's bytes.
    Places(Vec<Range<usize>>),
    /// The text does not occur.
    None,
    /// The text occurs more often than can be replaced at once.
    TooMany,
    /// The text occurs more than once, overlaps included, and one occurrence was asked for.
    Several {
        count: usize,
        at_least: bool,
        lines: Vec<u64>,
    },
}

/// A text to be found in a file.
#[derive(Debug)]
pub(super) struct Matcher<'a> {
    file: &'a [u8],
    /// The file with LF for CRLF, where that matters.
    searched: Cow<'a, [u8]>,
    text: Cow<'a, [u8]>,
    stop: &'a Stop,
    max: usize,
}

impl<'a> Matcher<'a> {
    /// Prepares a search for `text`, which is not empty, and for at most `max` occurrences.
    pub(super) fn new(file: &'a [u8], text: &'a str, max: usize, stop: &'a Stop) -> Self {
        let text = text.as_bytes();
        let has_breaks = text.contains(&b'\n');
        Self {
            file,
            searched: if has_breaks { to_lf(file) } else { file.into() },
            text: if has_breaks { to_lf(text) } else { text.into() },
            stop,
            max,
        }
    }

    /// Finds every occurrence that does not overlap an earlier one, or else exactly one.
    pub(super) fn find(&self, all: bool) -> Result<Found, Stopped> {
        let finder = Finder::new(self.text.as_ref());
        let step = if all { self.text.len() } else { 1 };
        let mut starts = Vec::new();
        let mut from = 0;
        while let Some(start) = self.next(&finder, from)? {
            starts.push(start);
            from = start + step;
            if !all && starts.len() > MAX_COUNT {
                break;
            }
            if starts.len() > self.max {
                return Ok(Found::TooMany);
            }
        }
        if starts.is_empty() {
            return Ok(Found::None);
        }
        if !all && starts.len() > 1 {
            let at_least = starts.len() > MAX_COUNT;
            starts.truncate(MAX_COUNT);
            return Ok(Found::Several {
                count: starts.len(),
                at_least,
                lines: lines(&self.searched, starts.into_iter(), MAX_LINES),
            });
        }
        Ok(Found::Places(self.in_file(&starts)))
    }

    fn next(&self, finder: &Finder<'_>, mut from: usize) -> Result<Option<usize>, Stopped> {
        let overlap = self.text.len() - 1;
        while let Some(rest) = self
            .searched
            .get(from..)
            .filter(|rest| rest.len() > overlap)
        {
            if let Some(cause) = self.stop.cause() {
                return Err(Stopped(cause));
            }
            // A block is never shorter than the text, so that a long text costs no more.
            let block = BLOCK.max(self.text.len());
            let window = rest.get(..block + overlap).unwrap_or(rest);
            if let Some(at) = finder.find(window) {
                return Ok(Some(from + at));
            }
            from += block;
        }
        Ok(None)
    }

    /// Turns places in what was searched, in ascending order, into places in the file.
    fn in_file(&self, starts: &[usize]) -> Vec<Range<usize>> {
        let len = self.text.len();
        if self.searched.len() == self.file.len() {
            return starts.iter().map(|start| *start..start + len).collect();
        }
        let mut breaks = memmem::find_iter(self.file, b"\r\n").peekable();
        let mut left_out = 0;
        let mut place = |searched: usize| {
            // A CR was left out before this place if its LF stands before it. A place at the LF itself is at the CR.
            while breaks
                .next_if(|carriage_return| carriage_return - left_out < searched)
                .is_some()
            {
                left_out += 1;
            }
            searched + left_out
        };
        let places = starts.iter().map(|start| {
            let begin = place(*start);
            begin..place(start + len)
        });
        places.collect()
    }
}

fn to_lf(text: &[u8]) -> Cow<'_, [u8]> {
    let mut breaks = memmem::find_iter(text, b"\r\n").peekable();
    if breaks.peek().is_none() {
        return text.into();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut from = 0;
    for carriage_return in breaks {
        out.extend_from_slice(text.get(from..carriage_return).unwrap_or_default());
        from = carriage_return + 1;
    }
    out.extend_from_slice(text.get(from..).unwrap_or_default());
    out.into()
}

/// Returns how large the file can become by [`replace`].
pub(super) fn largest(file: &[u8], places: &[Range<usize>], new: &str) -> usize {
    let breaks = bytecount::count(new.as_bytes(), b'\n');
    let grown = (new.len() + breaks).saturating_mul(places.len());
    file.len().saturating_add(grown)
}

/// Returns the file with `new` in each of `places`, in ascending order; its line breaks take the ending that the file has there.
pub(super) fn replace(file: &[u8], places: &[Range<usize>], new: &str) -> Vec<u8> {
    let removed: usize = places.iter().map(Range::len).sum();
    // A vector that grows holds its content twice for a moment, and a file may be large.
    let mut out = Vec::with_capacity(largest(file, places, new).saturating_sub(removed));
    let new = new.as_bytes();
    let has_breaks = new.contains(&b'\n');
    let lf = to_lf(new);
    let crlf = if has_breaks { to_crlf(&lf) } else { Vec::new() };
    let mut from = 0;
    for place in places {
        out.extend_from_slice(file.get(from..place.start).unwrap_or_default());
        let text = match has_breaks.then(|| ending_at(file, place)).flatten() {
            None => new,
            Some(Ending::Lf) => &lf,
            Some(Ending::Crlf) => &crlf,
        };
        out.extend_from_slice(text);
        from = place.end;
    }
    out.extend_from_slice(file.get(from..).unwrap_or_default());
    out
}

fn to_crlf(lf: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(lf.len() + lf.len() / 16);
    for line in lf.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\n") {
            Some(text) => {
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            None => out.extend_from_slice(line),
        }
    }
    out
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Lf,
    Crlf,
}

/// Returns the ending of the first line break in a place, else of the line it begins in, else of the line before.
fn ending_at(file: &[u8], place: &Range<usize>) -> Option<Ending> {
    let (before, after) = file.split_at_checked(place.start)?;
    let at = match memchr::memchr(b'\n', after) {
        Some(at) => place.start + at,
        None => memchr::memrchr(b'\n', before)?,
    };
    let is_crlf = at > 0 && file.get(at - 1) == Some(&b'\r');
    Some(if is_crlf { Ending::Crlf } else { Ending::Lf })
}

/// Returns the lines, from 1, of the first `max` of some places in ascending order.
pub(super) fn lines(file: &[u8], places: impl Iterator<Item = usize>, max: usize) -> Vec<u64> {
    let mut line = 1;
    let mut from = 0;
    let numbered = places.take(max).map(|place| {
        let between = file.get(from..place).unwrap_or_default();
        line += u64::try_from(bytecount::count(between, b'\n')).unwrap_or(0);
        from = place;
        line
    });
    numbered.collect()
}
