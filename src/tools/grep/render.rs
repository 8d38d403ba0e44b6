//! Shows what was kept as `path:line:text`, up to the bounds of an answer.

use super::sink::{FileHits, Line};
use crate::limits::Limits;
use crate::tools::search::encoded_len;
use crate::wire::GrepHit;
use crate::workspace::spelling::show;

/// What is shown.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Block 0.
    pub(super) text: String,
    /// The place of each match in it.
    pub(super) hits: Vec<GrepHit>,
    /// Files with a match in it.
    pub(super) files: u64,
}

/// Renders files in order; `budget` bounds the encoded text and places together.
pub(super) fn render(
    files: Vec<FileHits>,
    context: usize,
    limits: &Limits,
    budget: usize,
) -> Shown {
    let mut shown = Shown::default();
    let mut left = budget;
    'files: for file in files {
        let path = show(&file.path);
        let mut last_match = None;
        let mut last_line = None;
        for (at, line) in file.lines.iter().enumerate() {
            if line.column.is_some() && shown.hits.len() >= limits.grep_matches {
                break 'files;
            }
            if line.column.is_none()
                && !is_wanted(&file.lines, at, last_match, context, || {
                    shown.hits.len() < limits.grep_matches
                })
            {
                continue;
            }
            let gap = last_line.is_none_or(|last| last + 1 != line.number);
            let mark = if context > 0 && gap && !shown.text.is_empty() {
                "--\n"
            } else {
                ""
            };
            let sign = if line.column.is_some() { ':' } else { '-' };
            let text = format!("{mark}{path}{sign}{}{sign}{}", line.number, line.text);
            let place = line.column.map_or(0, |_| encoded_len(&path) + 64);
            let size = encoded_len(&text) + 2 + place;
            if size > left || shown.text.len() + text.len() + 1 > limits.grep_bytes {
                break 'files;
            }
            left -= size;
            if !shown.text.is_empty() {
                shown.text.push('\n');
            }
            shown.text.push_str(&text);
            last_line = Some(line.number);
            if let Some(column) = line.column {
                if last_match.is_none() {
                    shown.files += 1;
                }
                last_match = Some(line.number);
                shown.hits.push(GrepHit {
                    path: path.clone().into_owned(),
                    line: line.number,
                    column,
                });
            }
        }
    }
    shown
}

/// Whether a line of context belongs to a match that is shown.
fn is_wanted(
    lines: &[Line],
    at: usize,
    last_match: Option<u64>,
    context: usize,
    another: impl Fn() -> bool,
) -> bool {
    let context = context as u64;
    let Some(line) = lines.get(at) else {
        return false;
    };
    if last_match.is_some_and(|last| line.number <= last + context) {
        return true;
    }
    another()
        && lines
            .iter()
            .skip(at)
            .find(|line| line.column.is_some())
            .is_some_and(|next| next.number <= line.number + context)
}
