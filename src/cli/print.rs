//! Lines on standard output, with colour where the terminal has it.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

use super::Failure;

/// Prints a line. That its reader has gone (`… | head -1`) is no fault; that it cannot be written is.
pub(super) fn line(text: impl Display) -> Result<(), Failure> {
    written(writeln!(anstream::stdout(), "{text}"))
}

/// Prints bytes as they are, and a line's end where they have none.
pub(super) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let end: &[u8] = if bytes.ends_with(b"\n") { b"" } else { b"\n" };
    written(
        stdout
            .write_all(bytes)
            .and_then(|()| stdout.write_all(end))
            .and_then(|()| stdout.flush()),
    )
}

fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure {
            code: 1,
            sentence: format!("standard output cannot be written: {error}"),
        }),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints a line from its format, or leaves the function with the failure.
macro_rules! say {
    ($($format:tt)*) => {
        $crate::cli::print::line(format_args!($($format)*))?
    };
}

pub(super) use say;
