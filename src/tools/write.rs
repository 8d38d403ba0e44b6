//! `write`: a whole file, exactly the bytes of the call.

use super::digest::sha256_hex;
use super::{Ctx, ToolOutput};
use crate::wire::{Details, WriteDetails, WriteInput};
use crate::workspace::{Attempt, ChangeError, Parents, ReplaceError};

/// Runs `write`.
pub async fn write(ctx: &Ctx, input: WriteInput) -> ToolOutput {
    let WriteInput { path, content } = input;
    let changed = ctx
        .workspace
        .change_file(
            &ctx.stop,
            path,
            Parents::Make,
            move |stop, target| match target.replace(content.as_bytes(), None, stop) {
                Ok(replaced) => {
                    let how = if replaced.old_bytes.is_some() {
                        "replaced"
                    } else {
                        "created"
                    };
                    let bytes = content.len();
                    let details = WriteDetails {
                        path: target.shown().to_owned(),
                        bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
                        created: replaced.old_bytes.is_none(),
                        replaced_bytes: replaced.old_bytes,
                        sha256: sha256_hex(content.as_bytes()),
                    };
                    Attempt::Done(ToolOutput::done(
                        format!("Wrote {bytes} bytes to {} ({how})", target.spelled()),
                        [],
                        Details::Write(details),
                    ))
                }
                Err(error) => failed(error),
            },
        )
        .await;
    changed.unwrap_or_else(refused)
}

/// Turns what kept a file from being replaced into an output.
pub(super) fn failed(error: ReplaceError) -> Attempt<ToolOutput> {
    match error {
        ReplaceError::Moved => Attempt::Again,
        ReplaceError::Stopped(cause) => Attempt::Done(ToolOutput::stopped(cause)),
        ReplaceError::Path(error) => Attempt::Done(ToolOutput::error(error.to_string())),
    }
}

/// Turns what kept a change from being tried into an output.
pub(super) fn refused(error: ChangeError) -> ToolOutput {
    match error {
        ChangeError::Stopped(cause) => ToolOutput::stopped(cause),
        ChangeError::Path(error) => ToolOutput::error(error.to_string()),
    }
}
