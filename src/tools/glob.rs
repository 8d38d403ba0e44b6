//! `glob`.

use super::{Ctx, ToolOutput};
use crate::wire::GlobInput;

/// Runs `glob`.
pub async fn glob(_ctx: &Ctx, _input: GlobInput) -> ToolOutput {
    ToolOutput::error("not built")
}
