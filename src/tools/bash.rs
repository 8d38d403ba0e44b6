//! `bash`: a command in, its output and its end out.
//!
//! Block 0 is stdout, then stderr, then `exit_code: N`, each on its own line (protocol section 5.1). It must never
//! say that a command did something other than what the process room saw.

mod notes;

use std::ffi::OsString;
use std::time::Duration;

use self::notes::{notes, signal_name};
use super::render::count;
use super::{Ctx, ToolOutput};
use crate::process::{Call, Capture, Finished, RunError, Spec};
use crate::wire::{BashDetails, BashInput, ContentBlock, Details, EndCause};

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
        near: ctx.near.clone(),
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
        RunError::NotStarted(source) => {
            format!("The command could not be started: {source}. Nothing was run; try again later")
        }
        RunError::Unwatched(source) => {
            format!(
                "Nothing is known of the command's end: {error}: {source}. It was ended; what it did until then is in the workspace"
            )
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
    let code = exit_code(finished).map_or_else(|| "unknown".to_owned(), |code| code.to_string());
    text.push_str("exit_code: ");
    text.push_str(&code);
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
        let missing = count(preview.missing, "byte");
        text.push_str("[... ");
        text.push_str(&missing);
        text.push_str(" of ");
        text.push_str(name);
        text.push_str(" left out here ...]\n");
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

#[cfg(test)]
mod tests;
