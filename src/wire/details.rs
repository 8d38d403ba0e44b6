//! `details` of each tool's result: facts for the harness, never needed by the model.

use serde::Serialize;

/// Facts about one call, by tool; serialised as the inner object.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Details {
    /// Of `bash`.
    Bash(BashDetails),
    /// Of `read`.
    Read(ReadDetails),
    /// Of `write`.
    Write(WriteDetails),
    /// Of `edit`.
    Edit(EditDetails),
    /// Of `glob`.
    Glob(GlobDetails),
    /// Of `grep`.
    Grep(GrepDetails),
    /// Of `list_files`.
    ListFiles(ListFilesDetails),
}

/// Which stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What ended a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// The shell exited.
    Exited,
    /// A signal killed the shell, and it was not ours.
    Signalled,
    /// The call's own `timeout_ms`.
    Timeout,
    /// The call's `deadline_ms`.
    Deadline,
    /// `tool.cancel` or the session's close.
    Cancelled,
    /// The daemon's stop.
    Shutdown,
}

impl EndCause {
    /// Returns it as it is spelled on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Signalled => "signalled",
            Self::Timeout => "timeout",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::Shutdown => "shutdown",
        }
    }
}

/// Facts about a `bash` call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BashDetails {
    /// The shell's exit code; null where a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal's name (`SIGKILL`); null where the shell exited.
    pub signal: Option<String>,
    /// What ended it.
    pub cause: EndCause,
    /// From spawn to end, output drained.
    pub duration_ms: u64,
    /// User and system time of the shell and what it waited for.
    pub cpu_ms: u64,
    /// Peak memory; null where it does not exceed the daemon's own at the spawn (the figure then repeats that).
    pub max_rss_bytes: Option<u64>,
    /// Bytes the command wrote to standard output.
    pub stdout_bytes: u64,
    /// Bytes the command wrote to standard error.
    pub stderr_bytes: u64,
    /// Bytes missing from block 0.
    pub omitted_bytes: u64,
    /// Bytes that could not be decoded and became U+FFFD.
    pub undecodable_bytes: u64,
    /// Where the whole output is kept; null where the preview is the whole.
    pub output_paths: Option<OutputPaths>,
    /// Processes that were ended.
    pub killed: u64,
    /// Processes that could not be ended.
    pub survived: Vec<u32>,
    /// Processes that were left running.
    pub background: Vec<BackgroundProcess>,
    /// The time-out that applied.
    pub timeout_ms: u64,
}

/// Files with the whole output of a command, relative to the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutputPaths {
    /// Standard output.
    pub stdout: Option<String>,
    /// Standard error.
    pub stderr: Option<String>,
}

/// A process that outlived its shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackgroundProcess {
    /// Its process id.
    pub pid: u32,
    /// Its command line, shortened.
    pub command: String,
}

/// Facts about a `read` call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReadDetails {
    /// The path, relative to the workspace.
    pub path: String,
    /// Text or image.
    pub kind: ReadKind,
    /// The file's size.
    pub total_bytes: u64,
    /// Bytes of block 0 (of the file for an image).
    pub returned_bytes: u64,
    /// First line returned, from 1.
    pub first_line: Option<u64>,
    /// Last line returned.
    pub last_line: Option<u64>,
    /// Lines of the file; null where it was not read to its end.
    pub total_lines: Option<u64>,
    /// The offset to go on with; null at the end.
    pub next_offset: Option<u64>,
    /// Lines cut for their length.
    pub clipped_lines: u64,
    /// How the bytes were taken.
    pub encoding: Encoding,
    /// Of an image.
    pub media_type: Option<String>,
    /// Of the whole file, where it was read whole and is not large.
    pub sha256: Option<String>,
    /// Whether there was no data.
    pub empty: bool,
}

/// What `read` returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadKind {
    /// Lines of text.
    Text,
    /// An image block.
    Image,
}

/// How a file's bytes were taken as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Encoding {
    /// Valid UTF-8.
    #[serde(rename = "utf-8")]
    Utf8,
    /// UTF-16, little-endian, by its mark.
    #[serde(rename = "utf-16le")]
    Utf16Le,
    /// UTF-16, big-endian, by its mark.
    #[serde(rename = "utf-16be")]
    Utf16Be,
    /// Not UTF-8: shown lossily.
    #[serde(rename = "unknown")]
    Unknown,
}

/// Facts about a `write` call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WriteDetails {
    /// The path, relative to the workspace.
    pub path: String,
    /// Bytes written.
    pub bytes: u64,
    /// Whether the file is new.
    pub created: bool,
    /// Size of what was replaced.
    pub replaced_bytes: Option<u64>,
    /// Of the new content.
    pub sha256: String,
}

/// Facts about an `edit` call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EditDetails {
    /// The path, relative to the workspace.
    pub path: String,
    /// Replacements made.
    pub replacements: u64,
    /// First line of each replacement in the old file, at most 100.
    pub lines: Vec<u64>,
    /// Size before.
    pub bytes_before: u64,
    /// Size after.
    pub bytes_after: u64,
    /// Of the new content.
    pub sha256: String,
}

/// What a search left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Entries left out by ignore files.
    pub ignored: u64,
    /// Files taken for binary.
    pub binary: u64,
    /// FIFOs, sockets and devices.
    pub special: u64,
    /// Links not followed.
    pub not_followed: u64,
    /// What could not be read, at most 20.
    pub unreadable: Vec<String>,
    /// How many could not be read.
    pub unreadable_total: u64,
}

/// Facts about a `glob` call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts of the contract"
)]
pub struct GlobDetails {
    /// Paths returned.
    pub paths: u64,
    /// Paths found.
    pub total: u64,
    /// Whether `total` is the true number rather than a lower bound.
    pub total_is_exact: bool,
    /// What was left out.
    pub skipped: Skipped,
    /// Whether the limit cut the answer.
    pub truncated: bool,
    /// Whether a cancel or a deadline ended the search early.
    pub partial: bool,
    /// Whether there was no data.
    pub empty: bool,
}

/// Facts about a `grep` call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts of the contract"
)]
pub struct GrepDetails {
    /// Matching lines returned.
    pub matches: u64,
    /// Files with a returned match.
    pub files: u64,
    /// Files searched.
    pub files_searched: u64,
    /// Bytes searched.
    pub bytes_searched: u64,
    /// Matching lines found.
    pub total: u64,
    /// Whether `total` is the true number rather than a lower bound.
    pub total_is_exact: bool,
    /// Where each returned match is.
    pub hits: Vec<GrepHit>,
    /// What was left out.
    pub skipped: Skipped,
    /// Whether a limit cut the answer.
    pub truncated: bool,
    /// Whether a cancel or a deadline ended the search early.
    pub partial: bool,
    /// Whether there was no data.
    pub empty: bool,
}

/// The place of a match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GrepHit {
    /// The file, relative to the workspace.
    pub path: String,
    /// The line, from 1.
    pub line: u64,
    /// The first byte of the match in its line, from 1.
    pub column: u64,
}

/// Facts about a `list_files` call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts of the contract"
)]
pub struct ListFilesDetails {
    /// Entries returned.
    pub entries: u64,
    /// Entries found.
    pub total: u64,
    /// Whether `total` is the true number rather than a lower bound.
    pub total_is_exact: bool,
    /// Whether the limit cut the answer.
    pub truncated: bool,
    /// Whether a cancel or a deadline ended the listing early.
    pub partial: bool,
    /// Whether there was no data.
    pub empty: bool,
    /// Entries whose kind could not be told, at most 20.
    pub unreadable: Vec<String>,
}
