//! `glob`: paths that match a pattern.
//!
//! The pattern's literal beginning is where the walk begins, so a pattern that names a place never costs a walk of the
//! whole tree, and what it names is found though ignored or hidden.

mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use self::plan::{Plan, Unusable, Walk};
use super::search::{
    Keep, Pattern, Search, Skips, clip, encoded_len, plural, stopped_note, total_of, watch,
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
    watch(ctx, move |search| {
        match plan::plan(&workspace, &input, &search.limits) {
            Ok(plan) => run(search, &input.pattern, plan, budget),
            Err(Unusable(sentence)) => ToolOutput::error(sentence),
        }
    })
    .await
}

fn run(search: &Search, pattern: &str, plan: Plan, budget: usize) -> ToolOutput {
    let Plan {
        named,
        walk: rest,
        mut notes,
    } = plan;
    let mut found = Found::new(search);
    for path in &named {
        found.add(path.clone());
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
            found: Found::new(search),
        };
        let path = base.path.clone();
        match walk(base, &search.limits, &search.stop, &search.tally, make) {
            Ok(parts) => parts.into_iter().for_each(|part| found.absorb(part.found)),
            Err(why) => found.skips.unreadable(&path, why),
        }
    }
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
        notes.push(format!("No path matches `{shown}`."));
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
    found: Found,
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
                    self.found.add(path);
                }
            } else {
                self.found.directories += 1;
            }
            return;
        }
        if !self.named.is_empty() && self.named.contains(entry.path) {
            return;
        }
        self.search.tally.hits.fetch_add(1, Ordering::Relaxed);
        if self
            .found
            .keep
            .would_drop(|kept| kept.as_slice() <= entry.path)
        {
            self.found.total += 1;
        } else {
            self.found.add(entry.path.to_vec());
        }
    }

    fn unreadable(&mut self, path: &[u8], why: Errno) {
        self.found.skips.unreadable(path, why);
    }

    fn ignored(&mut self) {
        self.found.skips.skipped.ignored += 1;
    }
}
