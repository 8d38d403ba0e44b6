//! placeholder
use super::Failure;
use std::process::ExitCode;
pub(super) fn run() -> Result<ExitCode, Failure> {
    Ok(ExitCode::SUCCESS)
}
