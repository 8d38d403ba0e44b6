//! The closed set of tools: name, schema, input type and function of each.

use std::fmt;
use std::pin::Pin;

use serde_json::{Map, Value};

use crate::tools::{self, Ctx, ToolOutput};
use crate::wire::{
    BashInput, EditInput, GlobInput, GrepInput, InvalidInput, ListFilesInput, ReadInput,
    WriteInput, decode_input,
};

/// A tool of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tool {
    /// Runs a command.
    Bash,
    /// Reads a file.
    Read,
    /// Writes a file.
    Write,
    /// Replaces text in a file.
    Edit,
    /// Finds files by name.
    Glob,
    /// Finds lines by content.
    Grep,
    /// Lists a directory.
    ListFiles,
    /// Sees a display; not offered yet.
    ComputerObserve,
    /// Operates a display; not offered yet.
    ComputerAction,
}

macro_rules! schema {
    ($name:literal) => {
        include_str!(concat!(
            "../../contracts/executor/tools/",
            $name,
            ".input.schema.json"
        ))
    };
}

impl Tool {
    /// Every tool, in the order in which they are advertised.
    pub const ALL: [Self; 9] = [
        Self::Bash,
        Self::Read,
        Self::Write,
        Self::Edit,
        Self::Glob,
        Self::Grep,
        Self::ListFiles,
        Self::ComputerObserve,
        Self::ComputerAction,
    ];

    /// Returns its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Read => "read",
            Self::Write => "write",
            Self::Edit => "edit",
            Self::Glob => "glob",
            Self::Grep => "grep",
            Self::ListFiles => "list_files",
            Self::ComputerObserve => "computer_observe",
            Self::ComputerAction => "computer_action",
        }
    }

    /// Returns its place in [`Tool::ALL`].
    pub fn number(self) -> usize {
        self as usize
    }

    /// Finds a tool by its name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Whether it changes files by itself.
    pub(super) fn changes_files(self) -> bool {
        matches!(self, Self::Write | Self::Edit)
    }

    /// Returns the contract's own schema of its input.
    pub(super) fn input_schema(self) -> &'static str {
        match self {
            Self::Bash => schema!("bash"),
            Self::Read => schema!("read"),
            Self::Write => schema!("write"),
            Self::Edit => schema!("edit"),
            Self::Glob => schema!("glob"),
            Self::Grep => schema!("grep"),
            Self::ListFiles => schema!("list_files"),
            Self::ComputerObserve => schema!("computer_observe"),
            Self::ComputerAction => schema!("computer_action"),
        }
    }

    /// Types an input.
    ///
    /// # Errors
    /// [`InvalidInput`] names the member at fault.
    pub fn decode(self, input: Map<String, Value>) -> Result<ToolInput, InvalidInput> {
        match self {
            Self::Bash => decode_input(input).map(ToolInput::Bash),
            Self::Read => decode_input(input).map(ToolInput::Read),
            Self::Write => decode_input(input).map(ToolInput::Write),
            Self::Edit => decode_input(input).map(ToolInput::Edit),
            Self::Glob => decode_input(input).map(ToolInput::Glob),
            Self::Grep => decode_input(input).map(ToolInput::Grep),
            Self::ListFiles => decode_input(input).map(ToolInput::ListFiles),
            Self::ComputerObserve | Self::ComputerAction => {
                Err(InvalidInput::not_built(self.name()))
            }
        }
    }
}

/// The typed input of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolInput {
    /// For `bash`.
    Bash(BashInput),
    /// For `read`.
    Read(ReadInput),
    /// For `write`.
    Write(WriteInput),
    /// For `edit`.
    Edit(EditInput),
    /// For `glob`.
    Glob(GlobInput),
    /// For `grep`.
    Grep(GrepInput),
    /// For `list_files`.
    ListFiles(ListFilesInput),
}

/// The future of one tool's run. It must not be dropped before it is done: the tool hears of a stop by its `Ctx`.
pub type Run = Pin<Box<dyn Future<Output = ToolOutput> + Send>>;

/// Runs tools. Tests put their own in place of the built-in ones.
pub trait Toolbox: fmt::Debug + Send + Sync {
    /// Runs one tool; nothing is done before the future is polled.
    fn run(&self, ctx: Ctx, input: ToolInput) -> Run;

    /// Returns how long a tool's run may take of a connection's own time.
    fn pace(&self, _tool: Tool) -> Pace {
        Pace::Long
    }
}

/// How long a run may take of a connection's own time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Its first step takes some ten microseconds, waits for nothing and changes nothing, so that it may be taken between two
    /// messages of a connection, and before the call is noted as begun.
    AtAGlance,
    /// It may be over after a moment of waiting, with little to do meanwhile.
    MayBeBrief,
    /// It takes none.
    Long,
}

/// The tools of this executor.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn;

impl Toolbox for BuiltIn {
    fn run(&self, ctx: Ctx, input: ToolInput) -> Run {
        Box::pin(async move {
            match input {
                ToolInput::Bash(input) => tools::bash(&ctx, input).await,
                ToolInput::Read(input) => tools::read(&ctx, input).await,
                ToolInput::Write(input) => tools::write(&ctx, input).await,
                ToolInput::Edit(input) => tools::edit(&ctx, input).await,
                ToolInput::Glob(input) => tools::glob(&ctx, input).await,
                ToolInput::Grep(input) => tools::grep(&ctx, input).await,
                ToolInput::ListFiles(input) => tools::list_files(&ctx, input).await,
            }
        })
    }

    fn pace(&self, tool: Tool) -> Pace {
        match tool {
            Tool::Read => Pace::AtAGlance,
            Tool::Bash => Pace::MayBeBrief,
            Tool::Write
            | Tool::Edit
            | Tool::Glob
            | Tool::Grep
            | Tool::ListFiles
            | Tool::ComputerObserve
            | Tool::ComputerAction => Pace::Long,
        }
    }
}
