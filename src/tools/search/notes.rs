//! The sentences on what a search left out: a partial answer never looks like a whole one.

use std::borrow::Cow;

use rustix::io::Errno;

use crate::limits::Limits;
use crate::stop::StopCause;
use crate::wire::Skipped;
use crate::workspace::spelling::show;

/// What one thread of a search left out.
#[derive(Debug)]
pub(in crate::tools) struct Skips {
    /// Counts and names for the details.
    pub(in crate::tools) skipped: Skipped,
    /// Files whose search ended at a NUL byte beyond their head.
    pub(in crate::tools) cut_at_nul: Vec<(Vec<u8>, u64)>,
    /// Files with a line, or for a multi-line search a size, beyond the buffer.
    pub(in crate::tools) too_long: Vec<Vec<u8>>,
    most: usize,
    chars: usize,
}

impl Skips {
    /// Makes an empty record that names at most as many paths of each kind as the limits say.
    pub(in crate::tools) fn new(limits: &Limits) -> Self {
        Self {
            skipped: Skipped::default(),
            cut_at_nul: Vec::new(),
            too_long: Vec::new(),
            most: limits.search_named,
            chars: limits.quoted_chars,
        }
    }

    /// Notes a path that could not be read.
    pub(in crate::tools) fn unreadable(&mut self, path: &[u8], why: Errno) {
        self.skipped.unreadable_total += 1;
        if self.skipped.unreadable.len() < self.most {
            let reason = match why {
                Errno::ACCESS | Errno::PERM => "permission denied".to_owned(),
                Errno::STALE => "replaced while it was searched".to_owned(),
                Errno::MFILE | Errno::NFILE => "too many open files".to_owned(),
                other => std::io::Error::from(other).to_string(),
            };
            let path = clip_start(&show(path), self.chars);
            (self.skipped.unreadable).push(format!("{path} ({reason})"));
        }
    }

    /// Takes over what another thread left out.
    pub(in crate::tools) fn absorb(&mut self, other: Self) {
        let Self {
            skipped,
            cut_at_nul,
            too_long,
            most: _,
            chars: _,
        } = other;
        self.skipped.ignored += skipped.ignored;
        self.skipped.binary += skipped.binary;
        self.skipped.special += skipped.special;
        self.skipped.not_followed += skipped.not_followed;
        self.skipped.unreadable_total += skipped.unreadable_total;
        self.skipped.unreadable.extend(skipped.unreadable);
        self.cut_at_nul.extend(cut_at_nul);
        self.too_long.extend(too_long);
    }

    /// Puts the names in order and cuts them; returns the sentences.
    pub(in crate::tools) fn finish(&mut self) -> Vec<String> {
        self.skipped.unreadable.sort_unstable();
        self.skipped.unreadable.truncate(self.most);
        self.cut_at_nul.sort_unstable();
        self.too_long.sort_unstable();
        let skipped = &self.skipped;
        let mut left_out = Vec::new();
        if skipped.ignored > 0 {
            left_out.push(format!(
                "{} named by ignore files, with all below",
                plural(skipped.ignored, "entry", "entries")
            ));
        }
        if skipped.binary > 0 {
            left_out.push(plural(skipped.binary, "binary file", "binary files"));
        }
        if skipped.special > 0 {
            left_out.push(plural(
                skipped.special,
                "FIFO, socket or device",
                "FIFOs, sockets or devices",
            ));
        }
        if skipped.not_followed > 0 {
            left_out.push(plural(
                skipped.not_followed,
                "link that is not followed",
                "links that are not followed",
            ));
        }
        let mut notes = Vec::new();
        if !left_out.is_empty() {
            let advice = if skipped.ignored > 0 {
                " A path or pattern that spells out an ignored name includes it."
            } else {
                ""
            };
            notes.push(format!("Left out: {}.{advice}", left_out.join(", ")));
        }
        if skipped.unreadable_total > 0 {
            notes.push(format!(
                "Could not be read: {}.",
                named(&skipped.unreadable, skipped.unreadable_total)
            ));
        }
        if !self.cut_at_nul.is_empty() {
            let total = self.cut_at_nul.len() as u64;
            let names: Vec<_> = (self.cut_at_nul.iter().take(self.most))
                .map(|(path, at)| format!("{} (at byte {at})", clip_start(&show(path), self.chars)))
                .collect();
            notes.push(format!(
                "Searched only up to a NUL byte: {}. Give the file itself as `path` to search all of it.",
                named(&names, total)
            ));
        }
        if !self.too_long.is_empty() {
            let names: Vec<_> = (self.too_long.iter().take(self.most))
                .map(|path| clip_start(&show(path), self.chars))
                .collect();
            notes.push(format!(
                "Not searched to the end, because a line (or the file, for a search across lines) is too large for the \
                 buffer: {}.",
                named(&names, self.too_long.len() as u64)
            ));
        }
        notes
    }
}

/// Returns names, and how many more there are.
fn named(names: &[String], total: u64) -> String {
    let listed = names.join(", ");
    match total.saturating_sub(names.len() as u64) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

/// Returns a count with its noun.
pub(in crate::tools) fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Returns the true total, or "at least".
pub(in crate::tools) fn total_of(total: u64, exact: bool) -> String {
    if exact {
        total.to_string()
    } else {
        format!("at least {total}")
    }
}

/// Returns the sentence for a search that was ended early.
pub(in crate::tools) fn stopped_note(cause: StopCause, seen: u64) -> String {
    let why = match cause {
        StopCause::Cancelled => "The call was cancelled",
        StopCause::SessionClosed => "The session was closed",
        StopCause::Deadline => "The deadline was reached",
        StopCause::Shutdown => "The executor is stopping",
    };
    format!(
        "{why} before the search was done, after {}: this answer is partial. Narrow the pattern or `path`, or give it more \
         time.",
        plural(seen, "entry", "entries")
    )
}

/// Returns the end of a text that is too long to repeat: of a path the name tells most.
pub(in crate::tools) fn clip_start(text: &str, chars: usize) -> String {
    match text.char_indices().rev().nth(chars.saturating_sub(1)) {
        Some((at, _)) if at > 0 => format!("…{}", text.get(at..).unwrap_or_default()),
        _ => text.to_owned(),
    }
}

/// Returns the beginning of a text that is too long to repeat.
pub(in crate::tools) fn clip(text: &str, chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()).into(),
        None => text.into(),
    }
}
