//! `grep`.

use super::{Ctx, ToolOutput};
use crate::wire::GrepInput;

/// Runs `grep`.
pub async fn grep(_ctx: &Ctx, _input: GrepInput) -> ToolOutput {
    ToolOutput::error("not built")
}
