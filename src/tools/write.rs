//! `write`.

use super::{Ctx, ToolOutput};
use crate::wire::WriteInput;

/// Runs `write`.
pub async fn write(_ctx: &Ctx, _input: WriteInput) -> ToolOutput {
    ToolOutput::error("not built")
}
