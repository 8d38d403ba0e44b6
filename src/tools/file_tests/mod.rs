//! What read, write and edit do, seen through the tool functions and the disk.

mod edits;
mod paths;
mod programs;
mod reads;
mod writes;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Ctx, ToolOutput};
use crate::limits::Limits;
use crate::process::Processes;
use crate::progress::Progress;
use crate::stop::Stop;
use crate::wire::{ContentBlock, Details, EditInput, ReadDetails, ReadInput, WriteInput};
use crate::workspace::{Confinement, Workspace};

/// A workspace `ws` in a directory of its own.
pub(super) struct Room {
    outside: tempfile::TempDir,
    pub(super) ctx: Ctx,
}

pub(super) fn start_room() -> Room {
    start_room_with(Limits::default(), None)
}

pub(super) fn start_room_with(limits: Limits, confinement: Option<Confinement>) -> Room {
    let outside = tempfile::tempdir().unwrap();
    let root = outside.path().join("ws");
    std::fs::create_dir(&root).unwrap();
    let limits = Arc::new(limits);
    let workspace = Workspace::open_confined(&root, &limits, confinement).unwrap();
    let ctx = Ctx {
        workspace,
        processes: Processes::new(&limits, Vec::new()).session(Vec::new()),
        stop: Stop::new(),
        progress: Progress::silent(),
        limits,
        max_result_bytes: 1024 * 1024,
        near: None,
    };
    Room { outside, ctx }
}

impl Room {
    /// Returns where a name in the workspace is on the disk.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.outside.path().join("ws").join(name)
    }

    /// Returns where a name beside the workspace is on the disk.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.outside.path().join(name)
    }

    #[expect(clippy::disallowed_methods, reason = "a test looks at the disk itself")]
    pub(super) fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    #[expect(clippy::disallowed_methods, reason = "a test looks at the disk itself")]
    pub(super) fn get(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.at(name)).unwrap()
    }

    pub(super) fn link(&self, target: impl AsRef<Path>, name: &str) {
        std::os::unix::fs::symlink(target, self.at(name)).unwrap();
    }

    pub(super) async fn read(&self, path: &str) -> ToolOutput {
        self.read_at(path, None, None).await
    }

    pub(super) async fn read_at(
        &self,
        path: &str,
        offset: impl Into<Option<u64>>,
        limit: impl Into<Option<u64>>,
    ) -> ToolOutput {
        let input = ReadInput {
            path: path.to_owned(),
            offset: offset.into(),
            limit: limit.into(),
        };
        super::read(&self.ctx, input).await
    }

    pub(super) async fn write(&self, path: &str, content: &str) -> ToolOutput {
        let input = WriteInput {
            path: path.to_owned(),
            content: content.to_owned(),
        };
        super::write(&self.ctx, input).await
    }

    pub(super) async fn edit(&self, path: &str, old: &str, new: &str) -> ToolOutput {
        super::edit(&self.ctx, edit_input(path, old, new)).await
    }

    pub(super) async fn edit_all(&self, path: &str, old: &str, new: &str) -> ToolOutput {
        let mut input = edit_input(path, old, new);
        input.replace_all = Some(true);
        super::edit(&self.ctx, input).await
    }

    /// Fails where a temporary file is left anywhere in the workspace.
    #[track_caller]
    pub(super) fn check_no_leftovers(&self) {
        let mut dirs = vec![self.at("")];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap_or_default();
                assert!(!name.starts_with(".bma-tmp-"), "{name} is left");
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path());
                }
            }
        }
    }
}

pub(super) fn edit_input(path: &str, old: &str, new: &str) -> EditInput {
    EditInput {
        path: path.to_owned(),
        old_string: old.to_owned(),
        new_string: new.to_owned(),
        replace_all: None,
        expected_sha256: None,
    }
}

/// Returns the text of a block.
#[track_caller]
pub(super) fn text(output: &ToolOutput, block: usize) -> String {
    match output.content.get(block) {
        Some(ContentBlock::Text { text }) => text.plain(),
        other => panic!("block {block} is {other:?} in {output:?}"),
    }
}

/// Returns block 0 of a success.
#[track_caller]
pub(super) fn data(output: &ToolOutput) -> String {
    assert!(!output.is_error, "{output:?}");
    text(output, 0)
}

/// Fails unless the output is a tool error that holds each of `parts`.
#[track_caller]
pub(super) fn check_error(output: &ToolOutput, parts: &[&str]) {
    assert!(output.is_error, "{output:?}");
    assert_eq!(output.content.len(), 1, "{output:?}");
    let sentence = text(output, 0);
    for part in parts {
        assert!(sentence.contains(part), "no `{part}` in: {sentence}");
    }
}

#[track_caller]
pub(super) fn read_details(output: &ToolOutput) -> &ReadDetails {
    match &output.details {
        Some(Details::Read(details)) => details,
        other => panic!("{other:?} in {output:?}"),
    }
}

/// Returns mode, owner, group and inode.
pub(super) fn identity(path: &Path) -> (u32, u32, u32, u64) {
    let meta = std::fs::metadata(path).unwrap();
    (
        meta.permissions().mode() & 0o7777,
        meta.uid(),
        meta.gid(),
        meta.ino(),
    )
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
