//! `bash`.

use super::{Ctx, ToolOutput};
use crate::wire::BashInput;

/// Runs `bash`.
pub async fn bash(_ctx: &Ctx, _input: BashInput) -> ToolOutput {
    ToolOutput::error("not built")
}
