//! `list_files`: one directory, everything in it.
//!
//! Nothing is ignored here and nothing is opened: an entry that cannot be examined is listed all the same.

#[cfg(test)]
mod tests;

use std::cmp;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::fs::readlinkat;
use rustix::io::Errno;

use super::search::{Keep, Search, encoded_len, plural, stopped_note, total_of, watch};
use super::{Ctx, ToolOutput};
use crate::stop::StopCause;
use crate::wire::{Details, ListFilesDetails, ListFilesInput};
use crate::workspace::spelling::show;
use crate::workspace::walk::{Batch, Kind};
use crate::workspace::{Resolved, ResolvedKind};

/// Runs `list_files`.
pub async fn list_files(ctx: &Ctx, input: ListFilesInput) -> ToolOutput {
    let path = (input.path.filter(|path| !path.is_empty())).unwrap_or_else(|| ".".to_owned());
    let workspace = ctx.workspace.clone();
    let budget = ctx
        .max_result_bytes
        .saturating_sub(ctx.limits.result_overhead_bytes);
    let job = move |search: &Search| match workspace.resolve_dir_or_file(&path) {
        Err(error) => ToolOutput::error(error.to_string()),
        Ok(Resolved {
            kind: ResolvedKind::Directory,
            handle,
            ..
        }) => list(search, &path, &handle, budget),
        Ok(_) => ToolOutput::error(format!(
            "`{path}` is not a directory. Give a directory, or use `read` for a file."
        )),
    };
    watch(ctx, job, |_| None).await
}

#[derive(PartialEq, Eq)]
struct Listed {
    name: Vec<u8>,
    kind: Kind,
}

impl Ord for Listed {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.name.cmp(&other.name)
    }
}

impl PartialOrd for Listed {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// What reading the directory came to.
struct Found {
    keep: Keep<Listed>,
    total: u64,
    /// Why it was not read to its end.
    ended_by: Option<Ended>,
}

enum Ended {
    Stop(StopCause),
    Error(Errno),
}

fn read(search: &Search, dir: &OwnedFd) -> Found {
    let mut found = Found {
        keep: Keep::new(search.limits.list_entries, |_: &Listed| 1),
        total: 0,
        ended_by: None,
    };
    let mut batch = Batch::new();
    let mut from = None;
    loop {
        let next = batch.fill(dir.as_fd(), from);
        for (name, kind) in batch.entries() {
            found.total += 1;
            let name = name.to_bytes();
            if !(found.keep).would_drop(|kept| kept.name.as_slice() <= name) {
                found.keep.offer(Listed {
                    name: name.to_vec(),
                    kind,
                });
            }
        }
        (search.tally.entries).store(found.total, Ordering::Relaxed);
        match (next, search.stop.cause()) {
            (Ok(None), _) => return found,
            (Ok(more), None) => from = more,
            (Ok(_), Some(cause)) => {
                found.ended_by = Some(Ended::Stop(cause));
                return found;
            }
            (Err(why), _) => {
                found.ended_by = Some(Ended::Error(why));
                return found;
            }
        }
    }
}

fn list(search: &Search, path: &str, dir: &OwnedFd, budget: usize) -> ToolOutput {
    let Found {
        keep,
        total,
        ended_by,
    } = read(search, dir);
    if let (0, Some(Ended::Error(why))) = (total, &ended_by) {
        let why = std::io::Error::from(*why);
        return ToolOutput::error(format!("`{path}` cannot be listed: {why}."));
    }
    let (lines, unknown) = render(dir, keep, budget);
    let whole = ended_by.is_none();
    let entries = lines.len() as u64;
    let truncated = entries < total;
    let mut notes = Vec::new();
    if truncated {
        notes.push(format!(
            "Listed {entries} of {} entries, in bytewise order: … and {} more; narrow with `glob`.",
            total_of(total, whole),
            total_of(total - entries, whole)
        ));
    } else if total == 0 && whole {
        notes.push(format!("`{path}` is an empty directory."));
    }
    let stopped = match ended_by {
        Some(Ended::Stop(cause)) => {
            notes.push(stopped_note(cause, total));
            Some(cause)
        }
        Some(Ended::Error(why)) => {
            let why = std::io::Error::from(why);
            notes.push(format!(
                "The directory could not be read to its end: {why}."
            ));
            None
        }
        None => None,
    };
    if !unknown.is_empty() {
        let count = plural(unknown.len() as u64, "entry", "entries");
        notes.push(format!(
            "The kind of {count} could not be told; the name alone is listed."
        ));
    }
    let details = ListFilesDetails {
        entries,
        total,
        total_is_exact: whole,
        truncated,
        partial: stopped.is_some(),
        empty: lines.is_empty(),
        unreadable: (unknown.into_iter())
            .take(search.limits.search_named)
            .collect(),
    };
    let mut output = ToolOutput::done(lines.join("\n"), notes, Details::ListFiles(details));
    output.stopped = stopped;
    output.is_error = stopped.is_some();
    output
}

/// Renders as many entries as fit; returns also the names of those whose kind could not be told.
fn render(dir: &OwnedFd, keep: Keep<Listed>, budget: usize) -> (Vec<String>, Vec<String>) {
    let mut lines = Vec::new();
    let mut unknown = Vec::new();
    let mut size = 0;
    for Listed { mut name, kind } in keep.into_sorted() {
        let line = match kind {
            Kind::Directory => {
                name.push(b'/');
                show(&name).into_owned()
            }
            Kind::Link => match readlinkat(dir, name.as_slice(), Vec::new()) {
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
            unknown.push(line.clone());
        }
        lines.push(line);
    }
    (lines, unknown)
}
