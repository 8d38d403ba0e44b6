//! `read`.

use super::{Ctx, ToolOutput};
use crate::wire::ReadInput;

/// Runs `read`.
pub async fn read(_ctx: &Ctx, _input: ReadInput) -> ToolOutput {
    ToolOutput::error("not built")
}
