//! Searches one file after another with the same buffers, by ripgrep's rules for encodings and binary files.
//!
//! A small file is read in one piece, a large one through the engine's rolling buffer. A file never takes more memory
//! than the bounds say, whatever it holds.

use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::Ordering;

use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use rustix::io::Errno;

use super::bounded::Bounded;
use super::sink::{FileHits, LineSink};
use crate::limits::Limits;
use crate::tools::search::Search;

/// How much of a file's matches is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) matches: usize,
    pub(super) bytes: usize,
    pub(super) chars: usize,
}

impl Cost {
    pub(super) fn of(limits: &Limits) -> Self {
        Self {
            matches: limits.grep_matches,
            bytes: limits.grep_bytes,
            chars: limits.grep_excerpt_chars,
        }
    }

    fn of_match(self) -> usize {
        self.bytes.div_ceil(self.matches.max(1))
    }

    /// Weight at which either the matches or the bytes of an answer are surely full.
    pub(super) fn limit(self) -> usize {
        self.of_match() * self.matches + self.bytes
    }

    fn weigh(self, hits: &FileHits) -> usize {
        self.of_match() * hits.matches + hits.bytes
    }
}

/// How the search of a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// At its end.
    Whole,
    /// At its end, past a NUL.
    Nul(u64),
    /// At once: a NUL in its head makes it binary.
    Binary,
    /// At a NUL beyond its head.
    CutAtNul(u64),
    /// At a line beyond the buffer.
    TooLong,
    /// At an error.
    Failed(Errno),
}

/// What the search of a file comes to.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) hits: FileHits,
    /// Matching lines seen.
    pub(super) found: u64,
    /// Whether each matching line was counted.
    pub(super) counted_all: bool,
    pub(super) end: End,
}

/// The engine and its buffers, for one thread.
pub(super) struct FileSearcher<'a> {
    matcher: &'a Bounded,
    searcher: Searcher,
    search: &'a Search,
    whole: Vec<u8>,
    skips_binary: bool,
}

impl<'a> FileSearcher<'a> {
    /// Makes a searcher that leaves binary files out.
    pub(super) fn new(matcher: &'a Bounded, context: usize, search: &'a Search) -> Self {
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .multi_line(matcher.spans_lines())
            .before_context(context)
            .after_context(context)
            .heap_limit(Some(search.limits.search_line_bytes))
            .binary_detection(BinaryDetection::quit(0))
            .build();
        Self {
            matcher,
            searcher,
            search,
            whole: vec![0; search.limits.search_whole_bytes],
            skips_binary: true,
        }
    }

    /// Takes binary files, too: for a file that the caller named.
    pub(super) fn take_binary(&mut self) {
        self.skips_binary = false;
        (self.searcher).set_binary_detection(BinaryDetection::none());
    }

    /// Searches `file`, of about `size` bytes; `collect` says whether lines are wanted, or only their number.
    pub(super) fn search(
        &mut self,
        path: &[u8],
        mut file: File,
        size: u64,
        collect: bool,
    ) -> Outcome {
        let Self {
            matcher,
            ref mut searcher,
            search,
            ref mut whole,
            skips_binary,
        } = *self;
        let limits = &search.limits;
        let cost = Cost::of(limits);
        let hits_so_far = search.tally.hits.load(Ordering::Relaxed);
        let mut sink = LineSink {
            matcher,
            multi_line: searcher.multi_line(),
            stop: &search.stop,
            cost,
            collect,
            hits: FileHits {
                path: if collect { path.to_vec() } else { Vec::new() },
                ..FileHits::default()
            },
            found: 0,
            count_left: limits.grep_counted.saturating_sub(hits_so_far),
            gave_up: false,
            nul: None,
        };
        let end = match head(&mut file, whole, size) {
            Err(error) => End::Failed(errno(&error)),
            Ok((data, complete)) => {
                let read = data.len() as u64;
                search.tally.bytes.fetch_add(read, Ordering::Relaxed);
                let is_utf16 = is_utf16(data);
                let nul = memchr::memchr(0, data).filter(|_| !is_utf16);
                match nul {
                    Some(at) if skips_binary && at < limits.search_binary_head => End::Binary,
                    _ if complete || (nul.is_some() && skips_binary) => {
                        let clean = match nul {
                            Some(at) if skips_binary => data.get(..at).unwrap_or(data),
                            _ => data,
                        };
                        let done = searcher.search_slice(matcher, clean, &mut sink);
                        let nul = nul.map(|at| at as u64).or(sink.nul);
                        end_of(search, done, nul, skips_binary)
                    }
                    _ => {
                        let mut rest = Rest {
                            file,
                            search,
                            at: read,
                            is_utf16,
                            ends_at_nul: skips_binary && !is_utf16,
                            nul: nul.map(|at| at as u64),
                        };
                        let reader = data.chain(&mut rest);
                        let done = searcher.search_reader(matcher, reader, &mut sink);
                        end_of(search, done, sink.nul.or(rest.nul), skips_binary)
                    }
                }
            }
        };
        search.tally.hits.fetch_add(sink.found, Ordering::Relaxed);
        let mut hits = sink.hits;
        hits.cost = cost.weigh(&hits);
        Outcome {
            hits,
            found: sink.found,
            counted_all: !sink.gave_up,
            end,
        }
    }
}

fn end_of(search: &Search, done: io::Result<()>, nul: Option<u64>, skips_binary: bool) -> End {
    match (done, nul) {
        (Err(_), _) if search.stop.cause().is_some() => End::Whole,
        // The engine has no other way to say that its buffer is full.
        (Err(error), _) if error.raw_os_error().is_none() => End::TooLong,
        (Err(error), _) => End::Failed(errno(&error)),
        (Ok(()), None) => End::Whole,
        (Ok(()), Some(at)) if skips_binary => End::CutAtNul(at),
        (Ok(()), Some(at)) => End::Nul(at),
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Whether a mark says that the text is UTF-16, in which NULs are common.
fn is_utf16(data: &[u8]) -> bool {
    data.starts_with(b"\xff\xfe") || data.starts_with(b"\xfe\xff")
}

/// Reads the beginning of a file into `buffer`; returns it, and whether that is all.
fn head<'b>(file: &mut File, buffer: &'b mut [u8], size: u64) -> io::Result<(&'b [u8], bool)> {
    let mut length = 0;
    let complete = loop {
        let Some(free) = buffer.get_mut(length..).filter(|free| !free.is_empty()) else {
            break false;
        };
        match file.read(free) {
            Ok(0) => break true,
            Ok(read) => {
                length += read;
                // A file that has given as much as it holds is at its end; asking again would cost a call for each file.
                if length as u64 == size {
                    break true;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    };
    Ok((buffer.get(..length).unwrap_or_default(), complete))
}

/// The rest of a large file; reading it heeds the stop.
///
/// It finds NULs itself: the engine would also leave out what its buffer holds before one.
struct Rest<'a> {
    file: File,
    search: &'a Search,
    at: u64,
    is_utf16: bool,
    ends_at_nul: bool,
    nul: Option<u64>,
}

impl Read for Rest<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.search.stop.cause().is_some() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if self.ends_at_nul && self.nul.is_some() {
            return Ok(0);
        }
        let mut read = self.file.read(buffer)?;
        (self.search.tally.bytes).fetch_add(read as u64, Ordering::Relaxed);
        let data = buffer.get(..read).unwrap_or_default();
        if !self.is_utf16
            && self.nul.is_none()
            && let Some(nul) = memchr::memchr(0, data)
        {
            self.nul = Some(self.at + nul as u64);
            if self.ends_at_nul {
                read = nul;
            }
        }
        self.at += read as u64;
        Ok(read)
    }
}
