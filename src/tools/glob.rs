//! `glob`: paths that match a pattern.
//!
//! The pattern's literal beginning is where the walk begins, so a pattern that names a place never costs a walk of the
//! whole tree, and what it names is found though ignored or hidden.

mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use self::plan::{Plan, Unusable, Walk};
use super::search::{
    Keep, Part, Parts, Pattern, Search, Skips, clip, encoded_len, plural, stopped_note, total_of,
    watch,
};
use super::{Ctx, ToolOutput};
use crate::wire::{Details, GlobDetails, GlobInput};
use crate::workspace::spelling::show;
use crate::workspace::walk::{Claim, Entry, Kind, Visitor, walk};

/// Runs `glob`.
pub async fn glob(ctx: &Ctx, input: GlobInput) -> ToolOutput {
    let workspace = ctx.workspace.clone();
    let budget = ctx
        .max_result_bytes
        .saturating_sub(ctx.limits.result_overhead_bytes);
    let input = Arc::new(input);
    let parts = Parts::new();
    let (for_job, for_partial) = (Arc::clone(&input), parts.clone());
    let job = move |search: &Search| match plan::plan(&workspace, &for_job, &search.limits) {
        Ok(plan) => run(search, &for_job.pattern, plan, &parts, budget),
        Err(Unusable(sentence)) => ToolOutput::error(sentence),
    };
    let partial = |search: &Search| {
        let found = Found::of(&for_partial, search);
        Some(finish(search, &input.pattern, found, Vec::new(), budget))
    };
    watch(ctx, job, partial).await
}

fn run(
    search: &Search,
    pattern: &str,
    plan: Plan,
    parts: &Parts<Found>,
    budget: usize,
) -> ToolOutput {
    let Plan {
        named,
        walk: rest,
        notes,
    } = plan;
    let first = parts.add(Found::new(search));
    for path in &named {
        first.lock().add(path.clone());
    }
    if let Some(Walk {
        base,
        pattern,
        directories,
    }) = rest
    {
        let make = || Globber {
            pattern: &pattern,
            directories,
            named: &named,
            search,
            found: parts.add(Found::new(search)),
        };
        let path = base.path.clone();
        if let Err(why) = walk(base, &search.limits, &search.stop, &search.tally, make) {
            first.lock().skips.unreadable(&path, why);
        }
    }
    finish(search, pattern, Found::of(parts, search), notes, budget)
}

fn finish(
    search: &Search,
    pattern: &str,
    found: Found,
    mut notes: Vec<String>,
    budget: usize,
) -> ToolOutput {
    let Found {
        keep,
        total,
        directories,
        mut skips,
    } = found;
    let mut lines = Vec::new();
    let mut size = 0;
    for path in keep.into_sorted() {
        let line = show(&path).into_owned();
        size += encoded_len(&line) + 2;
        if size > budget {
            break;
        }
        lines.push(line);
    }
    let paths = lines.len() as u64;
    let stopped = search.stop.cause();
    let truncated = paths < total;
    if truncated {
        notes.push(format!(
            "Showing the first {paths} of {} paths, in bytewise order; narrow the pattern or `path`.",
            total_of(total, stopped.is_none())
        ));
    } else if total == 0 {
        let shown = clip(pattern, search.limits.quoted_chars);
        notes.push(match stopped {
            Some(_) => format!("No path matched `{shown}` so far."),
            None => format!("No path matches `{shown}`."),
        });
        if directories > 0 {
            notes.push(format!(
                "{} match; end the pattern in `/` to list directories.",
                plural(directories, "directory does", "directories")
            ));
        }
    }
    notes.extend(stopped.map(|cause| {
        let seen = search.tally.entries.load(Ordering::Relaxed);
        stopped_note(cause, seen)
    }));
    notes.extend(skips.finish());
    let details = GlobDetails {
        paths,
        total,
        total_is_exact: stopped.is_none(),
        skipped: skips.skipped,
        truncated,
        partial: stopped.is_some(),
        empty: total == 0,
    };
    let mut output = ToolOutput::done(lines.join("\n"), notes, Details::Glob(details));
    output.stopped = stopped;
    output.is_error = stopped.is_some();
    output
}

/// What one thread has found.
struct Found {
    keep: Keep<Vec<u8>>,
    total: u64,
    /// Directories that match a pattern that asks for files.
    directories: u64,
    skips: Skips,
}

impl Found {
    fn new(search: &Search) -> Self {
        Self {
            keep: Keep::new(search.limits.glob_paths, |_| 1),
            total: 0,
            directories: 0,
            skips: Skips::new(&search.limits),
        }
    }

    /// Takes together what all threads have found.
    fn of(parts: &Parts<Self>, search: &Search) -> Self {
        parts.together(|| Self::new(search), Self::absorb)
    }

    fn add(&mut self, path: Vec<u8>) {
        self.total += 1;
        self.keep.offer(path);
    }

    fn absorb(&mut self, other: Self) {
        self.total += other.total;
        self.directories += other.directories;
        self.keep.absorb(other.keep);
        self.skips.absorb(other.skips);
    }
}

struct Globber<'a> {
    pattern: &'a Pattern,
    directories: bool,
    named: &'a BTreeSet<Vec<u8>>,
    search: &'a Search,
    found: Part<Found>,
}

impl Visitor for Globber<'_> {
    fn claim(&self, entry: &Entry<'_>) -> Claim {
        if self.directories && entry.kind != Kind::Directory {
            return Claim::No;
        }
        self.pattern.claim(entry.below, entry.name.to_bytes())
    }

    fn descend(&self, entry: &Entry<'_>) -> Claim {
        self.pattern.descend(entry.depth, entry.name.to_bytes())
    }

    fn take(&mut self, entry: &Entry<'_>) {
        if entry.kind == Kind::Directory {
            if self.directories {
                let mut path = entry.path.to_vec();
                path.push(b'/');
                if !self.named.contains(&path) {
                    self.search.tally.hits.fetch_add(1, Ordering::Relaxed);
                    self.found.lock().add(path);
                }
            } else {
                self.found.lock().directories += 1;
            }
            return;
        }
        if !self.named.is_empty() && self.named.contains(entry.path) {
            return;
        }
        self.search.tally.hits.fetch_add(1, Ordering::Relaxed);
        let mut found = self.found.lock();
        if (found.keep).would_drop(|kept| kept.as_slice() <= entry.path) {
            found.total += 1;
        } else {
            found.add(entry.path.to_vec());
        }
    }

    fn unreadable(&mut self, path: &[u8], why: Errno) {
        self.found.lock().skips.unreadable(path, why);
    }

    fn ignored(&mut self) {
        self.found.lock().skips.skipped.ignored += 1;
    }
}
