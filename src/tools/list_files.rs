//! `list_files`: one directory, everything in it.
//!
//! Nothing is ignored here and nothing is opened: an entry that cannot be examined is listed all the same.

#[cfg(test)]
mod tests;

use std::cmp::Ordering as Order;
use std::os::fd::{AsFd as _, OwnedFd};

use super::search::{Keep, Search, encoded_len, plural, stopped_note, watch};
use super::{Ctx, ToolOutput};
use crate::wire::{Details, ListFilesDetails, ListFilesInput};
use crate::workspace::spelling::show;
use crate::workspace::walk::{Batch, Kind};
use crate::workspace::{Resolved, ResolvedKind};

/// Runs `list_files`.
pub async fn list_files(ctx: &Ctx, input: ListFilesInput) -> ToolOutput {
    let path = input.path.unwrap_or_else(|| ".".to_owned());
    let workspace = ctx.workspace.clone();
    let budget = ctx
        .max_result_bytes
        .saturating_sub(ctx.limits.result_overhead_bytes);
    watch(ctx, move |search| {
        match workspace.resolve_dir_or_file(&path) {
            Err(error) => ToolOutput::error(error.to_string()),
            Ok(Resolved {
                kind: ResolvedKind::Directory,
                handle,
                ..
            }) => list(search, &path, &handle, budget),
            Ok(_) => ToolOutput::error(format!(
                "`{path}` is not a directory. Give a directory, or use `read` for a file."
            )),
        }
    })
    .await
}

#[derive(PartialEq, Eq)]
struct Listed {
    name: Vec<u8>,
    kind: Kind,
}

impl Ord for Listed {
    fn cmp(&self, other: &Self) -> Order {
        self.name.cmp(&other.name)
    }
}

impl PartialOrd for Listed {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

fn list(search: &Search, path: &str, dir: &OwnedFd, budget: usize) -> ToolOutput {
    let mut keep = Keep::new(search.limits.list_entries, |_: &Listed| 1);
    let mut batch = Batch::new();
    let mut from = None;
    let mut total = 0_u64;
    let mut notes = Vec::new();
    let mut whole = true;
    loop {
        let next = batch.fill(dir.as_fd(), from);
        for (name, kind) in batch.entries() {
            total += 1;
            let name = name.to_bytes();
            if !keep.would_drop(|kept| kept.name.as_slice() <= name) {
                keep.offer(Listed {
                    name: name.to_vec(),
                    kind,
                });
            }
        }
        let seen = &search.tally.entries;
        seen.store(total, std::sync::atomic::Ordering::Relaxed);
        match next {
            Ok(None) => break,
            Ok(more) if search.stop.cause().is_none() => from = more,
            Ok(_) => {
                whole = false;
                break;
            }
            Err(why) if total == 0 => {
                return ToolOutput::error(format!(
                    "`{path}` cannot be listed: {}.",
                    std::io::Error::from(why)
                ));
            }
            Err(why) => {
                whole = false;
                let why = std::io::Error::from(why);
                notes.push(format!(
                    "The directory could not be read to its end: {why}."
                ));
                break;
            }
        }
    }
    let stopped = search.stop.cause().filter(|_| !whole);
    notes.extend(stopped.map(|cause| stopped_note(cause, total)));
    render(path, dir, keep, notes, budget, |data, notes, listed| {
        let truncated = listed.entries < total;
        let mut all = Vec::new();
        if truncated {
            let least = if whole { "" } else { "at least " };
            all.push(format!(
                "Listed {} of {least}{total} entries, in bytewise order: {least}{} more; narrow with `glob`.",
                listed.entries,
                total - listed.entries
            ));
        } else if total == 0 && whole {
            all.push(format!("`{path}` is an empty directory."));
        }
        all.extend(notes);
        let details = ListFilesDetails {
            total,
            total_is_exact: whole,
            truncated,
            partial: stopped.is_some(),
            empty: total == 0,
            ..listed
        };
        let mut output = ToolOutput::done(data, all, Details::ListFiles(details));
        output.stopped = stopped;
        output.is_error = stopped.is_some();
        output
    })
}

/// Renders as many entries as fit, and hands them on with what could not be examined.
fn render(
    path: &str,
    dir: &OwnedFd,
    keep: Keep<Listed>,
    mut notes: Vec<String>,
    budget: usize,
    finish: impl FnOnce(String, Vec<String>, ListFilesDetails) -> ToolOutput,
) -> ToolOutput {
    const NAMED: usize = 20;
    let mut lines = Vec::new();
    let mut unknown = Vec::new();
    let mut unknown_total = 0_u64;
    let mut entries = 0_u64;
    let mut size = 0;
    for Listed { mut name, kind } in keep.into_sorted() {
        let line = match kind {
            Kind::Directory => {
                name.push(b'/');
                show(&name).into_owned()
            }
            Kind::Link => match rustix::fs::readlinkat(dir, name.as_slice(), Vec::new()) {
                Ok(target) => format!("{} -> {}", show(&name), show(target.to_bytes())),
                Err(_) => format!("{} -> ?", show(&name)),
            },
            Kind::File | Kind::Special | Kind::Unknown => show(&name).into_owned(),
        };
        size += encoded_len(&line) + 2;
        if size > budget {
            break;
        }
        if kind == Kind::Unknown {
            unknown_total += 1;
            if unknown.len() < NAMED {
                unknown.push(show(&name).into_owned());
            }
        }
        entries += 1;
        lines.push(line);
    }
    if unknown_total > 0 {
        notes.push(format!(
            "In `{path}` the kind of {} could not be told (listed by name).",
            plural(unknown_total, "entry", "entries")
        ));
    }
    let listed = ListFilesDetails {
        entries,
        total: entries,
        total_is_exact: true,
        truncated: false,
        partial: false,
        empty: false,
        unreadable: unknown,
    };
    finish(lines.join("\n"), notes, listed)
}
