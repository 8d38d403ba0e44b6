//! From a file's bytes to block 0, the notes and the details of a text.

use encoding_rs::{UTF_16BE, UTF_16LE};

use super::blocks::{BLOCK, BlockReader, rest};
use super::window::{Bounds, Window};
use super::{Job, ReadError, kind, note};
use crate::tools::ToolOutput;
use crate::tools::digest::sha256_hex;
use crate::wire::{Details, Encoding, ReadDetails, ReadKind};
use crate::workspace::OpenedFile;

/// What is known once a window was taken.
pub(super) struct Taken {
    pub(super) window: Window,
    /// Lines of the file, where it was read to its end.
    pub(super) total_lines: Option<u64>,
    pub(super) total_bytes: u64,
    pub(super) encoding: Encoding,
    /// Of the whole file, where it is known.
    pub(super) sha256: Option<String>,
    /// Whether some bytes could not be decoded.
    pub(super) lossy: bool,
}

impl Job {
    pub(super) fn text(
        &self,
        opened: &OpenedFile,
        head: &[u8],
        reader: &mut BlockReader<'_>,
    ) -> Result<ToolOutput, ReadError> {
        let mut window = Window::new(self.bounds(opened), opened.len);
        let to_end = opened.len <= self.limits.read_count_bytes;
        window.pass(head);
        let mut seen = u64::try_from(head.len()).unwrap_or(0);
        let at_end = loop {
            if window.full && window.more && !to_end {
                break false;
            }
            let passed = if window.takes_blocks() {
                let start = window.out.len();
                let read = reader.append(&mut window.out);
                read.inspect(|_| window.absorb(start))
            } else {
                reader.block().map(|block| {
                    window.pass(block);
                    block.len()
                })
            };
            match passed.map_err(|error| error.about(&opened.spelled))? {
                0 => break true,
                passed => seen += u64::try_from(passed).unwrap_or(0),
            }
        };
        window.end();
        let whole = at_end && self.first() == 1 && !window.more && window.clips.is_empty();
        let taken = Taken {
            total_lines: at_end.then(|| window.lines_seen()),
            total_bytes: if at_end { seen } else { opened.len },
            encoding: Encoding::Utf8,
            sha256: (whole && window.out.len() <= self.limits.read_digest_bytes)
                .then(|| sha256_hex(&window.out)),
            lossy: false,
            window,
        };
        self.finish(opened, taken)
    }

    pub(super) fn utf16(
        &self,
        opened: &OpenedFile,
        head: &[u8],
        reader: &mut BlockReader<'_>,
        encoding: Encoding,
    ) -> Result<ToolOutput, ReadError> {
        let max = self.limits.read_utf16_bytes;
        let bytes = rest(reader, head, max)
            .map_err(|error| error.about(&opened.spelled))?
            .ok_or_else(|| {
                ReadError::Sentence(format!(
                    "`{}` is UTF-16 text of {} bytes; read decodes at most {max}: convert it with bash (iconv) first",
                    opened.spelled, opened.len
                ))
            })?;
        let decoder = if encoding == Encoding::Utf16Be {
            UTF_16BE
        } else {
            UTF_16LE
        };
        let after_mark = bytes.get(2..).unwrap_or_default();
        let (text, lossy) = decoder.decode_without_bom_handling(after_mark);
        let mut window = Window::new(self.bounds(opened), opened.len);
        for block in text.as_bytes().chunks(BLOCK) {
            window.pass(block);
        }
        window.end();
        let whole = self.first() == 1 && !window.more && window.clips.is_empty();
        let taken = Taken {
            total_lines: Some(window.lines_seen()),
            total_bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            encoding,
            sha256: (whole && bytes.len() <= self.limits.read_digest_bytes)
                .then(|| sha256_hex(&bytes)),
            lossy,
            window,
        };
        self.finish(opened, taken)
    }

    fn first(&self) -> u64 {
        self.input.offset.unwrap_or(1).max(1)
    }

    fn bounds(&self, opened: &OpenedFile) -> Bounds {
        let default_lines = u64::try_from(self.limits.read_lines).unwrap_or(u64::MAX);
        Bounds {
            offset: self.first(),
            lines: self.input.limit.unwrap_or(default_lines).max(1),
            bytes: match self.input.limit {
                Some(_) => usize::MAX,
                None => self.limits.read_bytes,
            },
            encoded: self.budget(opened),
            line_bytes: self.limits.read_line_bytes,
        }
    }

    fn finish(&self, opened: &OpenedFile, mut taken: Taken) -> Result<ToolOutput, ReadError> {
        let first = self.first();
        if let Some(total) = taken.total_lines
            && taken.window.taken == 0
            && first > 1
        {
            let sentence = note::past_the_end(&opened.spelled, first, total);
            return Err(ReadError::Sentence(sentence));
        }
        if memchr::memchr(0, &taken.window.out).is_some() {
            return Err(ReadError::binary(opened, kind::name(&taken.window.out)));
        }
        let bytes = std::mem::take(&mut taken.window.out);
        let mut returned = bytes.len();
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                taken.encoding = Encoding::Unknown;
                taken.lossy = true;
                // U+FFFD takes three bytes where one stood: the window may have to give up lines.
                let budget = self.budget(opened);
                let (text, consumed) =
                    note::lossy_text(error.as_bytes(), budget, &mut taken.window);
                returned = consumed;
                text
            }
        };
        let empty = text.is_empty();
        let last = (taken.window.taken > 0).then(|| first + taken.window.taken - 1);
        let notes = note::notes(opened, first, last, &taken);
        let details = ReadDetails {
            path: opened.shown.clone(),
            kind: ReadKind::Text,
            total_bytes: taken.total_bytes,
            returned_bytes: u64::try_from(returned).unwrap_or(u64::MAX),
            first_line: last.map(|_| first),
            last_line: last,
            total_lines: taken.total_lines,
            next_offset: last.filter(|_| taken.window.more).map(|last| last + 1),
            clipped_lines: u64::try_from(taken.window.clips.len()).unwrap_or(u64::MAX),
            encoding: taken.encoding,
            media_type: None,
            sha256: taken.sha256.filter(|_| !taken.window.more),
            empty,
        };
        Ok(ToolOutput::done(text, notes, Details::Read(details)))
    }
}
