//! What one thread of a search has found, and how it comes by it.

use std::fs::File;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::Wanted;
use super::search_file::{Cost, End, FileSearcher, Outcome};
use super::sink::FileHits;
use crate::tools::search::{Keep, Part, Parts, Search, Skips};
use crate::workspace::walk::{Claim, Entry, Kind, Visitor};

/// What one thread has found.
pub(super) struct Found {
    pub(super) keep: Keep<FileHits>,
    /// Matching lines seen.
    pub(super) total: u64,
    /// Whether each was counted.
    pub(super) exact: bool,
    /// Files searched.
    pub(super) searched: u64,
    pub(super) skips: Skips,
}

impl Found {
    pub(super) fn new(search: &Search) -> Self {
        let cost = Cost::of(&search.limits);
        Self {
            keep: Keep::new(cost.limit(), FileHits::weight),
            total: 0,
            exact: true,
            searched: 0,
            skips: Skips::new(&search.limits),
        }
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.total += other.total;
        self.exact &= other.exact;
        self.searched += other.searched;
        self.keep.absorb(other.keep);
        self.skips.absorb(other.skips);
    }

    /// Takes together what all threads have found.
    pub(super) fn of(parts: &Parts<Self>, search: &Search) -> Self {
        parts.together(|| Self::new(search), Self::absorb)
    }

    /// Takes what the search of one file came to; returns where it holds a NUL though that did not end the search.
    fn record(&mut self, path: &[u8], outcome: Outcome) -> Option<u64> {
        let Outcome {
            hits,
            found,
            counted_all,
            end,
        } = outcome;
        self.searched += 1;
        self.total += found;
        self.exact &= counted_all;
        if hits.matches > 0 {
            self.keep.offer(hits);
        }
        match end {
            End::Whole => None,
            End::Nul(at) => Some(at),
            End::Binary => {
                self.skips.skipped.binary += 1;
                None
            }
            End::CutAtNul(at) => {
                self.skips.skipped.binary += 1;
                self.skips.cut_at_nul.push((path.to_vec(), at));
                None
            }
            End::TooLong => {
                self.exact = false;
                self.skips.too_long.push(path.to_vec());
                None
            }
            End::Failed(why) => {
                self.skips.unreadable(path, why);
                None
            }
        }
    }
}

/// One thread of a search.
pub(super) struct Grepper<'a> {
    wanted: &'a Wanted<'a>,
    pub(super) files: FileSearcher<'a>,
    found: Part<Found>,
}

impl<'a> Grepper<'a> {
    pub(super) fn new(wanted: &'a Wanted<'a>) -> Self {
        let search = wanted.search;
        Self {
            wanted,
            files: FileSearcher::new(&wanted.matcher, wanted.context, search),
            found: wanted.parts.add(Found::new(search)),
        }
    }

    /// Searches one file; returns where it holds a NUL though that did not end the search.
    pub(super) fn search(&mut self, path: &[u8], file: File, size: u64) -> Option<u64> {
        let search = self.wanted.search;
        let mut found = self.found.lock();
        let drop_lines = (found.keep).would_drop(|kept| kept.path.as_slice() <= path);
        if drop_lines && search.tally.hits.load(Ordering::Relaxed) >= search.limits.grep_counted {
            found.exact = false;
            return None;
        }
        // What was found must be within reach while the file is searched.
        drop(found);
        search.tally.files.fetch_add(1, Ordering::Relaxed);
        let outcome = self.files.search(path, file, size, !drop_lines);
        self.found.lock().record(path, outcome)
    }
}

impl Visitor for Grepper<'_> {
    fn claim(&self, entry: &Entry<'_>) -> Claim {
        match (&self.wanted.include, entry.kind) {
            (_, Kind::Directory) => Claim::No,
            (None, _) => Claim::UnlessIgnored,
            (Some(include), _) => include.claim(entry),
        }
    }

    fn descend(&self, entry: &Entry<'_>) -> Claim {
        match &self.wanted.include {
            None => Claim::UnlessIgnored,
            Some(include) => include.descend(entry),
        }
    }

    fn take(&mut self, entry: &Entry<'_>) {
        match entry.kind {
            Kind::Directory => {}
            Kind::Link => self.found.lock().skips.skipped.not_followed += 1,
            Kind::Special => self.found.lock().skips.skipped.special += 1,
            Kind::File | Kind::Unknown => match entry.open() {
                Ok(Some((file, size))) => {
                    self.search(entry.path, file, size);
                }
                Ok(None) => {}
                Err(why) => self.found.lock().skips.unreadable(entry.path, why),
            },
        }
    }

    fn unreadable(&mut self, path: &[u8], why: Errno) {
        self.found.lock().skips.unreadable(path, why);
    }

    fn ignored(&mut self) {
        self.found.lock().skips.skipped.ignored += 1;
    }
}
