//! What `bash` says beside the output: how the command ended, what is missing and where it is.
//!
//! It must never repeat the output, nor say anything where there is nothing to say.

use std::time::Duration;

use crate::process::Finished;
use crate::tools::render::count;
use crate::wire::{EndCause, OutputPaths};

/// Returns what is to be said about a command that has ended.
pub(super) fn notes(
    finished: &Finished,
    asked: Duration,
    timeout: Duration,
    omitted: u64,
) -> Vec<String> {
    let mut notes = Vec::new();
    let ms = timeout.as_millis();
    match finished.cause {
        EndCause::Timeout => notes.push(format!(
            "Timed out: the command was ended after its timeout_ms of {ms}. The output above is what it wrote until then."
        )),
        // What ended the call as a whole is said by its answer.
        EndCause::Exited
        | EndCause::Signalled
        | EndCause::Deadline
        | EndCause::Cancelled
        | EndCause::Shutdown => {}
    }
    if let Some(signal) = finished.signal {
        notes.push(format!(
            "The shell was ended by signal {signal} ({}).",
            signal_name(signal)
        ));
    }
    if asked > timeout {
        notes.push(format!(
            "timeout_ms was lowered to the largest value allowed, {ms}."
        ));
    }
    let undecodable = finished.stdout.undecodable() + finished.stderr.undecodable();
    if undecodable > 0 {
        notes.push(format!(
            "{} of the output could not be decoded as UTF-8 and are shown as U+FFFD.",
            count(undecodable, "byte")
        ));
    }
    if omitted > 0 {
        notes.push(whereabouts(finished, omitted));
    }
    if !finished.background.is_empty() {
        let listed = finished
            .background
            .iter()
            .map(|process| format!("\n{} {}", process.pid, process.command));
        notes.push(format!(
            "{} left running in the background (ended when the session closes):{}",
            count(finished.background.len() as u64, "process"),
            listed.collect::<String>()
        ));
    }
    if finished.beyond_ceiling {
        notes.push(format!(
            "{} ended, since the session keeps no more background processes.",
            count(finished.killed, "background process")
        ));
    }
    if !finished.survived.is_empty() {
        let pids: Vec<String> = finished.survived.iter().map(u32::to_string).collect();
        notes.push(format!(
            "These processes could not be ended and are still there: {}.",
            pids.join(", ")
        ));
    }
    notes
}

/// Tells where the bytes are that block 0 leaves out.
fn whereabouts(finished: &Finished, omitted: u64) -> String {
    let total = finished.stdout.total() + finished.stderr.total();
    let shown = format!("{} of {total} are not shown.", count(omitted, "byte"));
    let Some(spill) = &finished.spill else {
        return shown;
    };
    match (&spill.paths, &spill.failure) {
        (Some(paths), None) if spill.capped => {
            format!(
                "{shown} The output is kept up to its ceiling: {}.",
                files(paths)
            )
        }
        (Some(paths), None) => format!("{shown} The whole output is kept: {}.", files(paths)),
        (Some(paths), Some(failure)) => {
            format!(
                "{shown} A part of the output is kept ({failure}): {}.",
                files(paths)
            )
        }
        (None, failure) => {
            let failure = failure.as_deref().unwrap_or("nothing was written");
            format!("{shown} The whole output could not be kept: {failure}.")
        }
    }
}

fn files(paths: &OutputPaths) -> String {
    let streams = [("stdout", &paths.stdout), ("stderr", &paths.stderr)];
    let named = streams
        .into_iter()
        .filter_map(|(name, path)| Some(format!("{name} in `{}`", path.as_ref()?)));
    named.collect::<Vec<_>>().join(", ")
}

/// Returns a signal's name as `kill -l` has it, with its prefix.
pub(super) fn signal_name(signal: i32) -> String {
    // signal(7), the numbers of x86 and ARM.
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let name = usize::try_from(signal)
        .ok()
        .and_then(|number| NAMES.get(number.checked_sub(1)?));
    name.map_or_else(|| format!("SIG{signal}"), |name| format!("SIG{name}"))
}
