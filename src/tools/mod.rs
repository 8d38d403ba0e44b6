//! The seven tools: one tool, one file, plain input in, plain output out.
//!
//! A tool sees no JSON text, no socket and no session. It reaches files through `workspace` and programs
//! through `process`, looks at [`Ctx::stop`] wherever it could take long, and returns what it has when that is given.

mod bash;
mod digest;
mod edit;
#[cfg(test)]
mod file_tests;
mod glob;
mod grep;
mod list_files;
mod read;
mod render;
mod search;
mod write;

use std::sync::Arc;

pub use bash::bash;
pub use edit::edit;
pub use glob::glob;
pub use grep::grep;
pub use list_files::list_files;
pub use read::read;
pub use write::write;

use crate::limits::Limits;
use crate::near::Near;
use crate::process::SessionProcesses;
use crate::progress::Progress;
use crate::stop::{Stop, StopCause};
use crate::wire::{ContentBlock, Details, Text};
use crate::workspace::Workspace;

/// What one call may use.
#[derive(Debug, Clone)]
pub struct Ctx {
    /// The session's workspace, the only way to files.
    pub workspace: Workspace,
    /// The session's processes, the only way to programs.
    pub processes: SessionProcesses,
    /// Given when the call must end early. The tool then returns what it has, soon.
    pub stop: Stop,
    /// Where the tool tells what it is doing.
    pub progress: Progress,
    /// The bounds.
    pub limits: Arc<Limits>,
    /// The largest encoded result that the harness takes, in bytes.
    pub max_result_bytes: usize,
    /// The connection's thread, where the call begins there.
    pub near: Option<Near>,
}

/// What a tool comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// Block 0 is the data, each further block a note. A text is never empty.
    pub content: Vec<ContentBlock>,
    /// Whether the model should take it as an error it can repair.
    pub is_error: bool,
    /// Facts for the harness; a tool error before any work has none.
    pub details: Option<Details>,
    /// Set where the stop signal ended the work before it was done; the content is then partial.
    pub stopped: Option<StopCause>,
}

impl ToolOutput {
    /// Makes a finished output of data and notes. Empty texts are left out.
    pub fn done(
        data: impl Into<Text>,
        notes: impl IntoIterator<Item = String>,
        details: Details,
    ) -> Self {
        let notes = notes.into_iter().map(Text::from);
        let content = std::iter::once(data.into())
            .chain(notes)
            .filter(|text| !text.is_empty())
            .map(ContentBlock::text)
            .collect();
        Self {
            content,
            is_error: false,
            details: Some(details),
            stopped: None,
        }
    }

    /// Makes a tool error: a sentence that tells a model how to repair its call.
    pub fn error(sentence: impl Into<Text>) -> Self {
        Self {
            content: vec![ContentBlock::text(sentence)],
            is_error: true,
            details: None,
            stopped: None,
        }
    }

    /// Makes the output of work that was stopped before it had anything to show.
    pub fn stopped(cause: StopCause) -> Self {
        Self {
            content: Vec::new(),
            is_error: true,
            details: None,
            stopped: Some(cause),
        }
    }
}
