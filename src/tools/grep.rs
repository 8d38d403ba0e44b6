//! `grep`: lines that match a regular expression.
//!
//! ripgrep's engine searches each file as the walk comes to it. Only what comes first in path order is kept; the rest is
//! counted.

mod excerpt;
mod found;
mod include;
mod matcher;
mod render;
mod search_file;
mod sink;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::sync::atomic::Ordering;

use grep_regex::RegexMatcher;

use self::found::{Found, Grepper};
use self::include::Include;
use self::render::render;
use self::search_file::FileSearcher;
use super::search::{Search, clip, plural, stopped_note, total_of, watch};
use super::{Ctx, ToolOutput};
use crate::wire::{Details, GrepDetails, GrepInput};
use crate::workspace::spelling::show;
use crate::workspace::walk::{Base, walk};
use crate::workspace::{Kind, Resolved, Workspace};

/// Runs `grep`.
pub async fn grep(ctx: &Ctx, input: GrepInput) -> ToolOutput {
    let workspace = ctx.workspace.clone();
    let budget = ctx
        .max_result_bytes
        .saturating_sub(ctx.limits.result_overhead_bytes);
    watch(ctx, move |search| {
        run(search, &workspace, &input, budget).unwrap_or_else(ToolOutput::error)
    })
    .await
}

/// What every thread of one search needs.
struct Wanted<'a> {
    search: &'a Search,
    matcher: RegexMatcher,
    multi_line: bool,
    context: usize,
    include: Option<Include>,
}

fn run(
    search: &Search,
    workspace: &Workspace,
    input: &GrepInput,
    budget: usize,
) -> Result<ToolOutput, String> {
    let (matcher, multi_line, mut notes) = matcher::build(input, &search.limits)?;
    let path = input.path.as_deref().filter(|path| !path.is_empty());
    let at = workspace
        .resolve_dir_or_file(path.unwrap_or("."))
        .map_err(|error| error.to_string())?
        .without_parents(workspace);
    let filter = input.glob.as_deref().filter(|glob| !glob.is_empty());
    let include = match filter {
        Some(glob) => Some(Include::new(glob, workspace, &at.path, &search.limits)?),
        None => None,
    };
    let wanted = Wanted {
        search,
        matcher,
        multi_line,
        context: usize::try_from(input.context.unwrap_or(0)).unwrap_or(0),
        include,
    };
    let found = match at.kind {
        Kind::Directory => search_below(&wanted, workspace, at)?,
        Kind::File => {
            if filter.is_some() {
                notes.push(
                    "`path` names a file, so the filter in `glob` was not applied.".to_owned(),
                );
            }
            search_one(&wanted, at, &mut notes)
        }
    };
    Ok(finish(&wanted, input, found, notes, budget))
}

fn search_below(wanted: &Wanted<'_>, workspace: &Workspace, at: Resolved) -> Result<Found, String> {
    let search = wanted.search;
    let root = workspace.open_dir(".").map_err(|error| error.to_string())?;
    let base = Base {
        root,
        dir: at.handle,
        path: at.path,
    };
    let path = base.path.clone();
    let make = || Grepper {
        wanted,
        files: FileSearcher::new(&wanted.matcher, wanted.multi_line, wanted.context, search),
        found: Found::new(search),
    };
    let mut found = Found::new(search);
    match walk(base, &search.limits, &search.stop, &search.tally, make) {
        Ok(parts) => parts.into_iter().for_each(|part| found.absorb(part.found)),
        Err(why) => found.skips.unreadable(&path, why),
    }
    Ok(found)
}

fn search_one(wanted: &Wanted<'_>, at: Resolved, notes: &mut Vec<String>) -> Found {
    let search = wanted.search;
    let mut found = Found::new(search);
    let mut files = FileSearcher::new(&wanted.matcher, wanted.multi_line, wanted.context, search);
    files.take_binary();
    let nul = found.search(search, &mut files, &at.path, File::from(at.handle), 0);
    if let Some(at_byte) = nul {
        notes.push(format!(
            "`{}` is binary (a NUL at byte {at_byte}): what cannot be shown as text stands as U+FFFD.",
            show(&at.path)
        ));
    }
    found
}

fn finish(
    wanted: &Wanted<'_>,
    input: &GrepInput,
    found: Found,
    mut notes: Vec<String>,
    budget: usize,
) -> ToolOutput {
    let search = wanted.search;
    let Found {
        keep,
        total,
        exact,
        searched,
        mut skips,
    } = found;
    let shown = render(keep.into_sorted(), wanted.context, &search.limits, budget);
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
            "No line matches `{}` in {} searched.",
            clip(&input.pattern, search.limits.quoted_chars),
            plural(searched, "file", "files")
        ));
        if let (0, Some(glob)) = (searched, &input.glob) {
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
