//! `edit`.

use super::{Ctx, ToolOutput};
use crate::wire::EditInput;

/// Runs `edit`.
pub async fn edit(_ctx: &Ctx, _input: EditInput) -> ToolOutput {
    ToolOutput::error("not built")
}
