//! From a file's bytes to block 0, the notes and the details of a text.

use encoding_rs::{UTF_16BE, UTF_16LE};

use super::blocks::{BLOCK, BlockReader};
use super::window::{Bounds, Window};
use super::{Job, ReadError, kind, note};
use crate::tools::ToolOutput;
use crate::tools::digest::{Digest, sha256_hex};
use crate::wire::{Details, Encoding, ReadDetails, ReadKind};
use crate::workspace::OpenedFile;

/// What is known once a window was taken.
pub(super) struct Taken {
    pub(super) window: Window,
    /// What the file is called should it turn out to be binary.
    pub(super) name: &'static str,
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
        reader: &mut BlockReader<'_>,
    ) -> Result<ToolOutput, ReadError> {
        let mut window = Window::new(self.bounds(opened), opened.len);
        let name = kind::name(reader.block());
        let to_end = opened.len <= self.limits.read_count_bytes;
        let digested = self.limits.read_digest_bytes as u64;
        let mut digest = (self.first() == 1 && opened.len <= digested).then(Digest::new);
        let mut seen = 0;
        let at_end = loop {
            let block = reader.block();
            window.pass(block);
            if let Some(digest) = &mut digest {
                digest.update(block);
            }
            seen += block.len() as u64;
            if window.full && window.more && !to_end {
                break false;
            }
            let read = reader.advance();
            if read.map_err(|error| error.about(&opened.spelled))? == 0 {
                break true;
            }
        };
        window.end();
        let whole = at_end && window.is_whole();
        let taken = Taken {
            name,
            total_lines: at_end.then(|| window.lines_seen()),
            total_bytes: if at_end { seen } else { opened.len },
            encoding: Encoding::Utf8,
            sha256: digest.filter(|_| whole).map(Digest::hex),
            lossy: false,
            window,
        };
        self.finish(opened, taken)
    }

    pub(super) fn utf16(
        &self,
        opened: &OpenedFile,
        reader: &mut BlockReader<'_>,
        encoding: Encoding,
    ) -> Result<ToolOutput, ReadError> {
        let max = self.limits.read_utf16_bytes;
        let bytes = reader.whole(max)
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
        let mut rest = text.as_ref();
        while !rest.is_empty() {
            let (block, later) = rest.split_at(rest.floor_char_boundary(BLOCK));
            window.pass(block.as_bytes());
            rest = later;
        }
        window.end();
        let whole = self.first() == 1 && window.is_whole();
        let taken = Taken {
            name: kind::name(&[]),
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
        if taken.window.found.nul {
            return Err(ReadError::binary(opened, taken.name));
        }
        if taken.window.found.no_text {
            taken.encoding = Encoding::Unknown;
        }
        let text = taken.window.take_text();
        let last = (taken.window.taken > 0).then(|| first + taken.window.taken - 1);
        let notes = note::notes(opened, first, last, &taken);
        let details = ReadDetails {
            path: opened.shown.clone(),
            kind: ReadKind::Text,
            total_bytes: taken.total_bytes,
            returned_bytes: taken.window.bytes as u64,
            first_line: last.map(|_| first),
            last_line: last,
            total_lines: taken.total_lines,
            next_offset: last.filter(|_| taken.window.more).map(|last| last + 1),
            clipped_lines: u64::try_from(taken.window.clips.len()).unwrap_or(u64::MAX),
            encoding: taken.encoding,
            media_type: None,
            sha256: taken.sha256.filter(|_| !taken.window.more),
            empty: text.is_empty(),
        };
        Ok(ToolOutput::done(text, notes, Details::Read(details)))
    }
}
