//! `bash`: a command in, its output and its end out.
//!
//! Block 0 is stdout, then stderr, then `exit_code: N`, each on its own line (protocol section 5.1). It must never
//! say that a command did something other than what the process room saw.

use std::ffi::OsString;
use std::time::Duration;

use super::render::count;
use super::{Ctx, ToolOutput};
use crate::process::{Call, Capture, Finished, RunError, Spec};
use crate::wire::{BashDetails, BashInput, ContentBlock, Details, EndCause, OutputPaths};

/// Runs `bash`.
pub async fn bash(ctx: &Ctx, input: BashInput) -> ToolOutput {
    if let Some(cause) = ctx.stop.cause() {
        return ToolOutput::stopped(cause);
    }
    let asked = input
        .timeout_ms
        .map_or(ctx.limits.bash_timeout, |ms| Duration::from_millis(ms.0));
    let timeout = asked.min(ctx.limits.max_bash_timeout);
    let cwd_name = input.cwd.as_deref().unwrap_or(".");
    let spec = match spec(ctx, &input, cwd_name, timeout) {
        Ok(spec) => spec,
        Err(sentence) => return ToolOutput::error(sentence),
    };
    let call = Call {
        workspace: ctx.workspace.clone(),
        stop: ctx.stop.clone(),
        progress: ctx.progress.clone(),
        limits: ctx.limits.clone(),
    };
    match ctx.processes.run(call, spec).await {
        Ok(finished) => output(ctx, &finished, asked, timeout),
        Err(error) => ToolOutput::error(refusal(&error, cwd_name)),
    }
}

fn spec(ctx: &Ctx, input: &BashInput, cwd_name: &str, timeout: Duration) -> Result<Spec, String> {
    if input.command.contains('\0') {
        return Err("`command` holds a NUL character, which no command can: write it as an escape, for instance `printf '\\0'`".to_owned());
    }
    let mut env: Vec<(OsString, OsString)> = Vec::new();
    for (name, value) in input.env.iter().flatten() {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(format!(
                "`env` has a member `{}` that cannot be a variable: a name may not be empty or hold `=`, and neither name nor value may hold a NUL character",
                name.escape_debug()
            ));
        }
        env.push((name.into(), value.into()));
    }
    let cwd = ctx
        .workspace
        .open_dir(cwd_name)
        .map_err(|error| error.to_string())?;
    Ok(Spec {
        command: input.command.clone(),
        cwd,
        env,
        timeout,
    })
}

/// Tells a model why nothing ran. A bad directory is never blamed on the shell.
fn refusal(error: &RunError, cwd_name: &str) -> String {
    match error {
        RunError::NoShell => "There is no bash on this machine, so no command can run".to_owned(),
        RunError::TooManyBackground(..) => format!(
            "{error}. Nothing was run. Close the session to end them all; `background` in the details of earlier calls lists them"
        ),
        RunError::Directory(source) => {
            format!(
                "The working directory `{cwd_name}` cannot be entered: {source}. Nothing was run"
            )
        }
        RunError::Deleted => format!(
            "The working directory `{cwd_name}` is missing: it has been deleted. Nothing was run; give a `cwd` that exists"
        ),
        RunError::TooLarge => format!("Nothing was run: {error}. Make `env` smaller"),
        RunError::Failed(source) => {
            format!("Nothing is known of the command's end: {error}: {source}")
        }
    }
}

fn output(ctx: &Ctx, finished: &Finished, asked: Duration, timeout: Duration) -> ToolOutput {
    let (out_budget, err_budget) = budgets(
        finished.stdout.total(),
        finished.stderr.total(),
        ctx.limits.bash_preview_bytes,
    );
    let mut text = String::new();
    let mut omitted = stream(&mut text, &finished.stdout, out_budget, "stdout");
    omitted += stream(&mut text, &finished.stderr, err_budget, "stderr");
    if let Some(code) = exit_code(finished) {
        text.push_str(&format!("exit_code: {code}"));
    } else {
        text.push_str("exit_code: unknown");
    }
    let mut content = vec![ContentBlock::text(text)];
    content.extend(
        notes(finished, asked, timeout, omitted)
            .into_iter()
            .map(ContentBlock::text),
    );
    let by_us = finished.cause != EndCause::Exited;
    ToolOutput {
        content,
        is_error: by_us,
        details: Some(Details::Bash(details(finished, timeout, omitted))),
        stopped: finished.stopped,
    }
}

/// Splits the preview between the streams: each gets what it needs, and half where both need more.
fn budgets(stdout: u64, stderr: u64, preview: usize) -> (usize, usize) {
    let stdout = usize::try_from(stdout).unwrap_or(usize::MAX);
    let stderr = usize::try_from(stderr).unwrap_or(usize::MAX);
    let half = preview / 2;
    (
        stdout.min(half.max(preview.saturating_sub(stderr))),
        stderr.min(half.max(preview.saturating_sub(stdout))),
    )
}

/// Adds a stream to block 0 so that what follows starts on a line of its own; returns the bytes left out.
fn stream(text: &mut String, capture: &Capture, budget: usize, name: &str) -> u64 {
    let preview = capture.preview(budget);
    text.push_str(&preview.head);
    if preview.missing > 0 {
        end_line(text);
        text.push_str(&format!(
            "[... {} of {name} left out here ...]\n",
            count(preview.missing, "byte")
        ));
        text.push_str(&preview.tail);
    }
    end_line(text);
    preview.missing
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

fn exit_code(finished: &Finished) -> Option<i32> {
    finished
        .exit_code
        .or(finished.signal.map(|signal| 128 + signal))
}

fn notes(finished: &Finished, asked: Duration, timeout: Duration, omitted: u64) -> Vec<String> {
    let mut notes = Vec::new();
    let ms = timeout.as_millis();
    match finished.cause {
        EndCause::Timeout => notes.push(format!(
            "Timed out: the command was ended after its timeout_ms of {ms}. The output above is what it wrote until then."
        )),
        EndCause::Deadline => notes.push("The call's deadline passed, and the command was ended.".to_owned()),
        EndCause::Cancelled => notes.push("The call was cancelled, and the command was ended.".to_owned()),
        EndCause::Shutdown => notes.push("The executor stops, and the command was ended.".to_owned()),
        EndCause::Exited | EndCause::Signalled => {}
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
        let mut note = format!(
            "{} left running in the background (ended when the session closes):",
            count(finished.background.len() as u64, "process")
        );
        for process in &finished.background {
            note.push_str(&format!("\n{} {}", process.pid, process.command));
        }
        notes.push(note);
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
    let mut note = format!("{} of {total} are not shown.", count(omitted, "byte"));
    let Some(spill) = &finished.spill else {
        return note;
    };
    let kept = |paths: &OutputPaths| {
        let names = [("stdout", &paths.stdout), ("stderr", &paths.stderr)];
        let named = names
            .into_iter()
            .filter_map(|(name, path)| path.as_ref().map(|path| format!("{name} in `{path}`")));
        named.collect::<Vec<_>>().join(", ")
    };
    match (&spill.paths, &spill.failure) {
        (Some(paths), None) if spill.capped => {
            note.push_str(&format!(
                " The output is kept up to its ceiling: {}.",
                kept(paths)
            ));
        }
        (Some(paths), None) => {
            note.push_str(&format!(" The whole output is kept: {}.", kept(paths)))
        }
        (Some(paths), Some(failure)) => {
            note.push_str(&format!(
                " A part of the output is kept ({failure}): {}.",
                kept(paths)
            ));
        }
        (None, failure) => {
            let failure = failure.as_deref().unwrap_or("nothing was written");
            note.push_str(&format!(" The whole output could not be kept: {failure}."));
        }
    }
    note
}

fn details(finished: &Finished, timeout: Duration, omitted: u64) -> BashDetails {
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    BashDetails {
        exit_code: finished.exit_code,
        signal: finished.signal.map(signal_name),
        cause: finished.cause,
        duration_ms: ms(finished.duration),
        cpu_ms: ms(finished.cpu),
        max_rss_bytes: finished.max_rss_bytes,
        stdout_bytes: finished.stdout.total(),
        stderr_bytes: finished.stderr.total(),
        omitted_bytes: omitted,
        undecodable_bytes: finished.stdout.undecodable() + finished.stderr.undecodable(),
        output_paths: finished
            .spill
            .as_ref()
            .and_then(|spill| spill.paths.clone()),
        killed: finished.killed,
        survived: finished.survived.clone(),
        background: finished.background.clone(),
        timeout_ms: ms(timeout),
    }
}

/// Returns a signal's name as `kill -l` has it, with its prefix.
fn signal_name(signal: i32) -> String {
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

#[cfg(test)]
mod tests;
