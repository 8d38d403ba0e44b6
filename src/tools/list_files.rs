//! `list_files`.

use super::{Ctx, ToolOutput};
use crate::wire::ListFilesInput;

/// Runs `list_files`.
pub async fn list_files(_ctx: &Ctx, _input: ListFilesInput) -> ToolOutput {
    ToolOutput::error("not built")
}
