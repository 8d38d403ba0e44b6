//! What `read` says about the data, beside the data.

use super::text::Taken;
use crate::wire::Encoding;
use crate::workspace::OpenedFile;

/// Clipped lines that a note names.
const SHOWN_CLIPS: usize = 5;

/// Returns the notes on a window of text; none where it is the whole file as it is.
pub(super) fn notes(
    opened: &OpenedFile,
    first: u64,
    last: Option<u64>,
    taken: &Taken,
) -> Vec<String> {
    let mut notes = Vec::new();
    match last {
        None => notes.push(format!("`{}` is empty: it has 0 lines.", opened.spelled)),
        Some(last) => notes.extend(lines(first, last, taken)),
    }
    let clips = &taken.window.clips;
    for clip in clips.iter().take(SHOWN_CLIPS) {
        notes.push(format!(
            "Line {} is {} bytes long; only its first {} are shown. read cannot go on inside a line: use bash (`cut -b`) or \
             grep for the rest.",
            clip.line, clip.bytes, clip.shown
        ));
    }
    if clips.len() > SHOWN_CLIPS {
        notes.push(format!(
            "{} further lines are clipped in the same way.",
            clips.len() - SHOWN_CLIPS
        ));
    }
    match taken.encoding {
        Encoding::Utf8 => {}
        Encoding::Utf16Le | Encoding::Utf16Be => {
            let name = if taken.encoding == Encoding::Utf16Le {
                "UTF-16, little-endian"
            } else {
                "UTF-16, big-endian"
            };
            let lossy = if taken.lossy {
                "; what could not be decoded is shown as U+FFFD"
            } else {
                ""
            };
            notes.push(format!(
                "The file is {name}, with a byte order mark; this is its text in UTF-8{lossy}. edit and write would not \
                 write UTF-16."
            ));
        }
        Encoding::Unknown => notes.push(
            "The text is not valid UTF-8: bytes that could not be decoded are shown as U+FFFD. edit keeps them as they are; \
             writing this text back would not."
                .to_owned(),
        ),
    }
    notes
}

fn lines(first: u64, last: u64, taken: &Taken) -> Option<String> {
    let range = if first == last {
        format!("Line {first}")
    } else {
        format!("Lines {first}-{last}")
    };
    let next = last + 1;
    match (taken.total_lines, taken.window.more) {
        (Some(total), true) => Some(format!(
            "{range} of {total}; {} more follow: go on with offset {next}.",
            total.saturating_sub(last)
        )),
        (None, _) => Some(format!(
            "{range}; more follow (the file has {} bytes, its lines were not counted): go on with offset {next}.",
            taken.total_bytes
        )),
        (Some(total), false) if first > 1 => {
            Some(format!("{range} of {total}, to the end of the file."))
        }
        (Some(_), false) => None,
    }
}

/// Returns the sentence for an offset behind the last line.
pub(super) fn past_the_end(path: &str, offset: u64, total: u64) -> String {
    match total {
        0 => format!("offset {offset} is past the end of `{path}`: the file is empty (0 lines)"),
        1 => format!("offset {offset} is past the end of `{path}`: it has 1 line"),
        _ => format!("offset {offset} is past the end of `{path}`: it has {total} lines"),
    }
}
