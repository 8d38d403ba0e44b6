//! `grep`: lines that match a regular expression.
//!
//! ripgrep's engine searches each file as the walk comes to it. Only what comes first in path order is kept; the rest is
//! counted.

mod bounded;
mod cache;
mod excerpt;
mod found;
mod include;
mod matcher;
mod render;
mod search_file;
mod simulation;
mod sink;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use self::bounded::Bounded;
use self::cache::{Cached, compiled};
use self::found::{Found, Grepper};
use self::include::Include;
use self::render::render;
use super::search::{Parts, Search, clip, plural, stopped_note, total_of, watch};
use super::{Ctx, ToolOutput};
use crate::wire::{Details, GrepDetails, GrepInput};
use crate::workspace::spelling::show;
use crate::workspace::walk::{Base, walk};
use crate::workspace::{Resolved, ResolvedKind, Workspace};

/// Runs `grep`.
pub async fn grep(ctx: &Ctx, input: GrepInput) -> ToolOutput {
    let workspace = ctx.workspace.clone();
    let budget = ctx
        .max_result_bytes
        .saturating_sub(ctx.limits.result_overhead_bytes);
    let input = Arc::new(input);
    let parts = Parts::new();
    let (for_job, for_partial) = (Arc::clone(&input), parts.clone());
    let job = move |search: &Search| {
        run(search, &workspace, &for_job, &parts, budget).unwrap_or_else(ToolOutput::error)
    };
    let partial = |search: &Search| {
        let found = Found::of(&for_partial, search);
        Some(finish(search, &input, found, Vec::new(), budget))
    };
    watch(ctx, job, partial).await
}

/// What every thread of one search needs.
struct Wanted<'a> {
    search: &'a Search,
    matcher: Bounded,
    context: usize,
    include: Option<Include>,
    parts: &'a Parts<Found>,
}

fn run(
    search: &Search,
    workspace: &Workspace,
    input: &GrepInput,
    parts: &Parts<Found>,
    budget: usize,
) -> Result<ToolOutput, String> {
    let Cached { pattern, mut notes } = compiled(input, &search.limits)?;
    let path = input.path.as_deref().filter(|path| !path.is_empty());
    let at = workspace
        .resolve_dir_or_file(path.unwrap_or("."))
        .map_err(|error| error.to_string())?;
    let filter = input.glob.as_deref().filter(|glob| !glob.is_empty());
    let include = match filter {
        Some(glob) => Some(Include::new(glob, workspace, &at.path, &search.limits)?),
        None => None,
    };
    let wanted = Wanted {
        search,
        matcher: Bounded::new(pattern, search.stop.clone()),
        context: context(input),
        include,
        parts,
    };
    match at.kind {
        ResolvedKind::Directory => search_below(&wanted, workspace, at),
        ResolvedKind::File => {
            if filter.is_some() {
                notes.push(
                    "`path` names a file, so the filter in `glob` was not applied.".to_owned(),
                );
            }
            search_one(&wanted, at, &mut notes);
        }
    }
    let found = Found::of(parts, search);
    Ok(finish(search, input, found, notes, budget))
}

/// Returns how many lines around each match are wanted.
fn context(input: &GrepInput) -> usize {
    usize::try_from(input.context.unwrap_or(0)).unwrap_or(0)
}

fn search_below(wanted: &Wanted<'_>, workspace: &Workspace, at: Resolved) {
    let search = wanted.search;
    let base = Base {
        root: workspace.directory(),
        dir: at.handle,
        path: at.path,
    };
    let path = base.path.clone();
    let make = || Grepper::new(wanted);
    if let Err(why) = walk(base, &search.limits, &search.stop, &search.tally, make) {
        let part = wanted.parts.add(Found::new(search));
        part.lock().skips.unreadable(&path, why);
    }
}

fn search_one(wanted: &Wanted<'_>, at: Resolved, notes: &mut Vec<String>) {
    let mut grepper = Grepper::new(wanted);
    grepper.files.take_binary();
    wanted.search.tally.entries.fetch_add(1, Ordering::Relaxed);
    if let Some(at_byte) = grepper.search(&at.path, File::from(at.handle), 0) {
        notes.push(format!(
            "`{}` is binary (a NUL at byte {at_byte}): what cannot be shown as text stands as U+FFFD.",
            show(&at.path)
        ));
    }
}

fn finish(
    search: &Search,
    input: &GrepInput,
    found: Found,
    mut notes: Vec<String>,
    budget: usize,
) -> ToolOutput {
    let Found {
        keep,
        total,
        exact,
        searched,
        mut skips,
    } = found;
    let shown = render(keep.into_sorted(), context(input), &search.limits, budget);
    let stopped = search.stop.cause();
    let exact = exact && stopped.is_none();
    let matches = shown.hits.len() as u64;
    let truncated = matches < total;
    if truncated {
        notes.push(format!(
            "Showing the first {matches} of {} matching lines, ordered by path, then line; narrow the pattern, `path` or `glob`.",
            total_of(total, exact)
        ));
    } else if total == 0 {
        notes.push(format!(
            "No line {} `{}` in {} searched{}.",
            if stopped.is_some() {
                "matched"
            } else {
                "matches"
            },
            clip(&input.pattern, search.limits.quoted_chars),
            plural(searched, "file", "files"),
            if stopped.is_some() { " so far" } else { "" },
        ));
        if let (0, Some(glob), None) = (searched, &input.glob, stopped) {
            notes.push(format!(
                "No file passes the filter `{}`.",
                clip(glob, search.limits.quoted_chars)
            ));
        }
    }
    notes.extend(stopped.map(|cause| {
        let seen = search.tally.entries.load(Ordering::Relaxed);
        stopped_note(cause, seen)
    }));
    notes.extend(skips.finish());
    let details = GrepDetails {
        matches,
        files: shown.files,
        files_searched: searched,
        bytes_searched: search.tally.bytes.load(Ordering::Relaxed),
        total,
        total_is_exact: exact,
        hits: shown.hits,
        skipped: skips.skipped,
        truncated,
        partial: stopped.is_some(),
        empty: shown.text.is_empty(),
    };
    let mut output = ToolOutput::done(shown.text, notes, Details::Grep(details));
    output.stopped = stopped;
    output.is_error = stopped.is_some();
    output
}
