//! `read`: lines of a text file exactly as they are in the file, or an image.
//!
//! A file is never taken into memory for the sake of a few lines of it. What is not text is refused by its kind
//! rather than shown as something it is not.

mod blocks;
mod kind;
mod note;
mod text;
mod window;

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::digest::sha256_hex;
use super::{Ctx, ToolOutput};
use crate::limits::Limits;
use crate::stop::{Stop, StopCause};
use crate::wire::{
    ContentBlock, Details, Encoding, ImageSource, ReadDetails, ReadInput, ReadKind, Text,
};
use crate::workspace::{OpenedFile, Stopped, Workspace};
use blocks::{BlockReader, Patience};
use kind::FileKind;

/// Bytes of an encoded result that are not block 0: ids of 128 characters, details and notes.
const RESERVE: usize = 8 * 1024;

/// Why there is nothing to return.
#[derive(Debug)]
enum ReadError {
    /// A sentence for the model.
    Sentence(String),
    /// The stop signal came.
    Stopped(StopCause),
    /// It would take waiting, for which this is not the place.
    WouldWait,
}

/// Runs `read`.
pub async fn read(ctx: &Ctx, input: ReadInput) -> ToolOutput {
    let job = Job {
        workspace: ctx.workspace.clone(),
        limits: Arc::clone(&ctx.limits),
        max_result_bytes: ctx.max_result_bytes,
        input,
    };
    // A change of thread and back takes longer than a small file that is in memory already.
    let done = match job.run_at_once(&ctx.stop).await {
        Err(ReadError::WouldWait) => {
            let run = move |stop: &Stop| job.run(stop);
            ctx.workspace.run_blocking(&ctx.stop, run).await
        }
        done => Ok(done),
    };
    match done {
        Ok(Ok(output)) => output,
        Ok(Err(ReadError::Sentence(sentence))) => ToolOutput::error(sentence),
        Ok(Err(ReadError::Stopped(cause))) | Err(Stopped(cause)) => ToolOutput::stopped(cause),
        Ok(Err(ReadError::WouldWait)) => ToolOutput::error("the file could not be read; try again"),
    }
}

struct Job {
    workspace: Workspace,
    limits: Arc<Limits>,
    max_result_bytes: usize,
    input: ReadInput,
}

impl Job {
    /// Reads a file that is small and in memory; it never waits for a disk.
    async fn run_at_once(&self, stop: &Stop) -> Result<ToolOutput, ReadError> {
        let opened = self
            .workspace
            .open_cached_file(&self.input.path)
            .filter(|opened| opened.len <= self.limits.read_inline_bytes)
            .ok_or(ReadError::WouldWait)?;
        if opened.len > self.limits.read_glance_bytes {
            // Whoever takes the first step of a call has no time for more.
            tokio::task::yield_now().await;
        }
        self.output(&opened, stop, Patience::None)
    }

    fn run(&self, stop: &Stop) -> Result<ToolOutput, ReadError> {
        let opened = self
            .workspace
            .open_file(&self.input.path)
            .map_err(|error| ReadError::Sentence(error.to_string()))?;
        self.output(&opened, stop, Patience::Any)
    }

    fn output(
        &self,
        opened: &OpenedFile,
        stop: &Stop,
        patience: Patience,
    ) -> Result<ToolOutput, ReadError> {
        let mut reader = BlockReader::new(opened, stop, patience);
        reader
            .advance()
            .map_err(|error| error.about(&opened.spelled))?;
        match kind::of(reader.block()) {
            FileKind::Text => self.text(opened, &mut reader),
            FileKind::Image(media_type) => self.image(opened, &mut reader, media_type),
            FileKind::Utf16(encoding) => self.utf16(opened, &mut reader, encoding),
            FileKind::Binary(name) => Err(ReadError::binary(opened, name)),
        }
    }

    /// Returns what block 0 may take when it is encoded.
    fn budget(&self, opened: &OpenedFile) -> usize {
        let paths = 4 * (Text::from(&opened.shown).wire_len() + opened.spelled.len());
        self.max_result_bytes.saturating_sub(RESERVE + paths)
    }

    fn image(
        &self,
        opened: &OpenedFile,
        reader: &mut BlockReader<'_>,
        media_type: &str,
    ) -> Result<ToolOutput, ReadError> {
        let path = opened.spelled.clone();
        // Base64 takes four characters for three bytes.
        let fits = self.budget(opened) / 4 * 3;
        let max = self.limits.read_image_bytes.min(fits);
        let bytes = reader.whole(max)
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

impl ReadError {
    fn binary(opened: &OpenedFile, name: &str) -> Self {
        Self::Sentence(format!(
            "`{}` is not text: {name}, {} bytes; look at it with bash (file, xxd, or a program for its kind)",
            opened.spelled, opened.len
        ))
    }
}
