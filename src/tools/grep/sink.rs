//! Takes what the engine finds in one file: lines to show, up to a bound, and a count of the rest.

use std::cmp::Ordering;
use std::io;
use std::ops::Range;

use grep_matcher::Matcher as _;
use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};

use super::bounded::Bounded;
use super::excerpt::excerpt;
use super::search_file::Cost;
use crate::stop::Stop;

/// A line to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// From 1.
    pub(super) number: u64,
    /// The first byte of the match, from 1; `None` for context.
    pub(super) column: Option<u64>,
    /// The line, or an excerpt.
    pub(super) text: String,
}

/// The lines of one file, ordered by path.
#[derive(Debug, Default)]
pub(super) struct FileHits {
    /// Relative to the workspace.
    pub(super) path: Vec<u8>,
    /// In order.
    pub(super) lines: Vec<Line>,
    /// How many of them are matches.
    pub(super) matches: usize,
    /// Bytes they take when shown.
    pub(super) bytes: usize,
    pub(super) cost: usize,
}

impl FileHits {
    /// What they count against the bound of an answer.
    pub(super) fn weight(&self) -> usize {
        self.cost
    }
}

impl PartialEq for FileHits {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for FileHits {}

impl Ord for FileHits {
    fn cmp(&self, other: &Self) -> Ordering {
        self.path.cmp(&other.path)
    }
}

impl PartialOrd for FileHits {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Collects from one file.
pub(super) struct LineSink<'a> {
    pub(super) matcher: &'a Bounded,
    pub(super) multi_line: bool,
    pub(super) stop: &'a Stop,
    pub(super) cost: Cost,
    /// Whether lines are wanted, rather than their number alone.
    pub(super) collect: bool,
    pub(super) hits: FileHits,
    /// Matching lines seen.
    pub(super) found: u64,
    /// Matching lines that may be counted still, once no more lines are wanted.
    pub(super) count_left: u64,
    /// Whether counting was given up.
    pub(super) gave_up: bool,
    /// Where a NUL ended the search.
    pub(super) nul: Option<u64>,
}

impl LineSink<'_> {
    fn is_full(&self) -> bool {
        !self.collect
            || self.hits.matches >= self.cost.matches
            || self.hits.bytes >= self.cost.bytes
    }

    fn push(&mut self, number: u64, column: Option<u64>, line: &[u8], hit: &Range<usize>) {
        let text = excerpt(line, hit, self.cost.chars);
        self.hits.bytes += self.hits.path.len() + text.len() + 12;
        self.hits.matches += usize::from(column.is_some());
        self.hits.lines.push(Line {
            number,
            column,
            text,
        });
    }
}

impl Sink for LineSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.stop.cause().is_some() {
            return Ok(false);
        }
        if self.is_full() {
            let lines = found.lines().count() as u64;
            self.found += lines;
            if self.found > self.count_left {
                self.gave_up = true;
                return Ok(false);
            }
            return Ok(true);
        }
        let block = if self.multi_line {
            found.bytes()
        } else {
            trim_line_end(found.bytes())
        };
        let ranges = ranges(self.matcher, block, self.cost.matches)?;
        let mut ranges = ranges.iter().peekable();
        let mut start = 0;
        let numbers = found.line_number().unwrap_or(0)..;
        for (number, line) in numbers.zip(found.lines()) {
            self.found += 1;
            let shown = trim(line);
            while ranges
                .next_if(|range| range.end <= start && range.start < start)
                .is_some()
            {}
            let hit = ranges.peek().map_or(0..0, |range| {
                let from = range.start.max(start) - start;
                from..range.end.saturating_sub(start).max(from)
            });
            if !self.is_full() {
                self.push(number, Some(hit.start as u64 + 1), shown, &hit);
            }
            start += line.len();
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        // What follows the last match wanted still belongs to it; rendering cuts what stands before the next.
        if self.collect && self.hits.bytes < self.cost.bytes {
            let wanted = !self.is_full()
                || (self.hits.lines.last())
                    .is_some_and(|last| context.line_number() == Some(last.number + 1));
            if wanted {
                let number = context.line_number().unwrap_or(0);
                self.push(number, None, trim(context.bytes()), &(0..0));
            }
        }
        Ok(self.stop.cause().is_none())
    }

    fn binary_data(&mut self, searcher: &Searcher, at: u64) -> io::Result<bool> {
        self.nul = self.nul.or(Some(at));
        Ok(searcher.binary_detection().quit_byte().is_none())
    }
}

/// Returns the matches in a block of lines, at most `most`.
fn ranges(matcher: &Bounded, block: &[u8], most: usize) -> io::Result<Vec<Range<usize>>> {
    let mut ranges = Vec::new();
    matcher
        .find_iter(block, |found| {
            ranges.push(found.start()..found.end());
            ranges.len() < most
        })
        .map_err(io::Error::other)?;
    Ok(ranges)
}

fn trim_line_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

fn trim(line: &[u8]) -> &[u8] {
    let line = trim_line_end(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
