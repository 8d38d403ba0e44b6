//! `read`: lines of a text file exactly as they are in the file, or an image.
//!
//! A file is never taken into memory for the sake of a few lines of it. What is not text is refused by its kind
//! rather than shown as something it is not.

mod kind;
mod note;
mod text;
mod window;

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::digest::sha256_hex;
use super::{Ctx, ToolOutput};
use crate::limits::Limits;
use crate::stop::{Stop, StopCause};
use crate::wire::{
    ContentBlock, Details, Encoding, ImageSource, ReadDetails, ReadInput, ReadKind, escaped_len,
};
use crate::workspace::{OpenedFile, Stopped, Workspace};
use kind::FileKind;

/// Bytes read between two looks at the stop signal.
const BLOCK: usize = 64 * 1024;
/// Bytes of an encoded result that are not block 0: ids of 128 characters, details and notes.
const RESERVE: usize = 8 * 1024;

/// Why there is nothing to return.
#[derive(Debug)]
enum ReadError {
    /// A sentence for the model.
    Sentence(String),
    /// The stop signal came.
    Stopped(StopCause),
}

/// Runs `read`.
pub async fn read(ctx: &Ctx, input: ReadInput) -> ToolOutput {
    let job = Job {
        workspace: ctx.workspace.clone(),
        limits: Arc::clone(&ctx.limits),
        max_result_bytes: ctx.max_result_bytes,
        input,
    };
    match ctx
        .workspace
        .run_blocking(&ctx.stop, move |stop| job.run(stop))
        .await
    {
        Ok(Ok(output)) => output,
        Ok(Err(ReadError::Sentence(sentence))) => ToolOutput::error(sentence),
        Ok(Err(ReadError::Stopped(cause))) | Err(Stopped(cause)) => ToolOutput::stopped(cause),
    }
}

struct Job {
    workspace: Workspace,
    limits: Arc<Limits>,
    max_result_bytes: usize,
    input: ReadInput,
}

impl Job {
    fn run(&self, stop: &Stop) -> Result<ToolOutput, ReadError> {
        let opened = self
            .workspace
            .open_file(&self.input.path)
            .map_err(|error| ReadError::Sentence(error.to_string()))?;
        let mut reader = BlockReader {
            file: &opened.file,
            stop,
            buffer: vec![0; BLOCK],
        };
        let head = reader
            .block()
            .map_err(|error| error.about(&opened.spelled))?
            .to_vec();
        match kind::of(&head) {
            FileKind::Text => self.text(&opened, &head, &mut reader),
            FileKind::Image(media_type) => self.image(&opened, &head, &mut reader, media_type),
            FileKind::Utf16(encoding) => self.utf16(&opened, &head, &mut reader, encoding),
            FileKind::Binary(name) => Err(ReadError::binary(&opened, name)),
        }
    }

    /// Returns what block 0 may take when it is encoded.
    fn budget(&self, opened: &OpenedFile) -> usize {
        let paths = 4 * (escaped_len(opened.shown.as_bytes()) + opened.spelled.len());
        self.max_result_bytes.saturating_sub(RESERVE + paths)
    }

    fn image(
        &self,
        opened: &OpenedFile,
        head: &[u8],
        reader: &mut BlockReader<'_>,
        media_type: &str,
    ) -> Result<ToolOutput, ReadError> {
        let path = opened.spelled.clone();
        // Base64 takes four characters for three bytes.
        let fits = self.budget(opened) / 4 * 3;
        let max = self.limits.read_image_bytes.min(fits);
        let bytes = rest(reader, head, max)
            .map_err(|error| error.about(&path))?
            .ok_or_else(|| {
                ReadError::Sentence(format!(
                    "`{path}` is an image ({media_type}) of {} bytes; at most {max} can be returned: make a smaller copy \
                     of it with bash",
                    opened.len
                ))
            })?;
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let details = ReadDetails {
            path: opened.shown.clone(),
            kind: ReadKind::Image,
            total_bytes: len,
            returned_bytes: len,
            first_line: None,
            last_line: None,
            total_lines: None,
            next_offset: None,
            clipped_lines: 0,
            encoding: Encoding::Unknown,
            media_type: Some(media_type.to_owned()),
            sha256: Some(sha256_hex(&bytes)),
            empty: false,
        };
        let source = ImageSource::Base64 {
            media_type: media_type.to_owned(),
            data: STANDARD.encode(&bytes),
        };
        Ok(ToolOutput {
            content: vec![
                ContentBlock::Image { source },
                // A result needs a text for interfaces that cannot show the image.
                ContentBlock::text(format!(
                    "`{path}` is an image ({media_type}) of {len} bytes."
                )),
            ],
            is_error: false,
            details: Some(Details::Read(details)),
            stopped: None,
        })
    }
}

/// Reads a file block by block, looking at the stop signal before each.
struct BlockReader<'a> {
    file: &'a File,
    stop: &'a Stop,
    buffer: Vec<u8>,
}

/// Why a block could not be read.
#[derive(Debug)]
enum BlockError {
    Io(std::io::Error),
    Stopped(StopCause),
}

impl BlockError {
    fn about(self, path: &str) -> ReadError {
        match self {
            Self::Io(error) => ReadError::Sentence(format!("cannot read `{path}`: {error}")),
            Self::Stopped(cause) => ReadError::Stopped(cause),
        }
    }
}

impl BlockReader<'_> {
    /// Appends the next block; returns its size, nothing at the end of the file.
    fn append(&self, out: &mut Vec<u8>) -> Result<usize, BlockError> {
        if let Some(cause) = self.stop.cause() {
            return Err(BlockError::Stopped(cause));
        }
        let mut block = self.file.take(BLOCK as u64);
        block.read_to_end(out).map_err(BlockError::Io)
    }

    /// Returns the next block; an empty one at the end of the file.
    fn block(&mut self) -> Result<&[u8], BlockError> {
        if let Some(cause) = self.stop.cause() {
            return Err(BlockError::Stopped(cause));
        }
        let mut filled = 0;
        while let Some(room) = self
            .buffer
            .get_mut(filled..)
            .filter(|room| !room.is_empty())
        {
            match self.file.read(room) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(BlockError::Io(error)),
            }
        }
        Ok(self.buffer.get(..filled).unwrap_or_default())
    }
}

/// Reads on to the end; nothing where the whole has more than `max` bytes.
fn rest(
    reader: &mut BlockReader<'_>,
    head: &[u8],
    max: usize,
) -> Result<Option<Vec<u8>>, BlockError> {
    let mut whole = head.to_vec();
    loop {
        if whole.len() > max {
            return Ok(None);
        }
        let block = reader.block()?;
        if block.is_empty() {
            return Ok(Some(whole));
        }
        whole.extend_from_slice(block);
    }
}

impl ReadError {
    fn binary(opened: &OpenedFile, name: &str) -> Self {
        Self::Sentence(format!(
            "`{}` is not text: {name}, {} bytes; look at it with bash (file, xxd, or a program for its kind)",
            opened.spelled, opened.len
        ))
    }
}
