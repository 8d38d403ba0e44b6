//! `demo`: an executor over a scratch workspace, driven as a harness would.

mod steps;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::print::say;
use super::{Failure, host};
use crate::config::{Config, Settings};
use crate::daemon::{Daemon, Machine};
use crate::dispatch::BuiltIn;
use crate::harness::{CallEvent, Harness};
use crate::net::Target;
use crate::telemetry::{self, LogFormat, LogLevel};
use crate::wire::{
    ContentBlock, DeadlineMs, SessionId, ToolCall, ToolCallId, ToolCancel, ToolResult,
};
use steps::{Step, steps};

const CALL: Style = AnsiColor::Cyan.on_default().bold();
const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();

/// No step of the demo takes longer than this.
const PATIENCE: Duration = Duration::from_secs(15);

/// Runs the demo. Exit status 0 only if each call came out as it should.
pub(super) fn run() -> Result<ExitCode, Failure> {
    let _log = telemetry::init(LogFormat::Text, LogLevel::Warn)?;
    let scratch = tempfile::Builder::new().prefix("bma-executor-").tempdir()?;
    let settings = Settings {
        workspace: Some(scratch.path().to_owned()),
        listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        ..Settings::default()
    };
    let config = Config::new(settings)?;
    let machine = Machine::probe(&config, host::environment(), host::user())?;
    let key = crate::secret::token().map_err(std::io::Error::other)?;
    let wrong = super::runtime()?.block_on(async {
        let (daemon, address) =
            Daemon::listen(machine, &config, Some(key.clone()), Arc::new(BuiltIn))?;
        let target = Target::new(&format!("ws://{address}"), Some(key), None)?;
        say!(
            "{DIM}executor at {} over {}{DIM:#}",
            target.shown(),
            scratch.path().display()
        );
        let (stop, stopped) = oneshot::channel();
        let daemon = tokio::spawn(daemon.run(
            async { stopped.await.unwrap_or("the demo is over") },
            CancellationToken::new(),
        ));
        let driven = drive(&target).await;
        drop(stop);
        daemon.await.map_err(std::io::Error::other)??;
        driven
    })?;
    if wrong == 0 {
        say!("{GOOD}every call came out as it should{GOOD:#}");
        return Ok(ExitCode::SUCCESS);
    }
    say!("{BAD}{wrong} of the calls came out wrong{BAD:#}");
    Ok(ExitCode::FAILURE)
}

/// Makes every call; returns how many came out wrong.
async fn drive(target: &Target) -> Result<usize, Failure> {
    let mut harness = Harness::connect(target).await?;
    let id = |error: crate::wire::InvalidId| Failure::usage(error.to_string());
    let session_id = SessionId::new("demo").map_err(id)?;
    let mut wrong = 0;
    for (at, step) in steps().into_iter().enumerate() {
        let tool_call_id = ToolCallId::new(&format!("call-{}", at + 1)).map_err(id)?;
        let begun = Instant::now();
        say!(
            "\n{DIM}{}. {}{DIM:#}\n{CALL}{} {}{CALL:#}",
            at + 1,
            step.title,
            step.name,
            step.input
        );
        let call = make(&mut harness, &step, &session_id, &tool_call_id);
        let Ok(result) = timeout(PATIENCE, call).await else {
            say!("{BAD}no result within {PATIENCE:?}{BAD:#}");
            wrong += 1;
            continue;
        };
        let result = result?;
        wrong += usize::from(!show(&step, &result, begun.elapsed())?);
    }
    harness.close().await?;
    Ok(wrong)
}

/// Makes one call and waits for its result, showing its progress.
async fn make(
    harness: &mut Harness,
    step: &Step,
    session_id: &SessionId,
    tool_call_id: &ToolCallId,
) -> Result<ToolResult, Failure> {
    let input = step.input.as_object().cloned().unwrap_or_default();
    let (session_id, tool_call_id) = (session_id.clone(), tool_call_id.clone());
    let call = ToolCall {
        session_id: session_id.clone(),
        tool_call_id: tool_call_id.clone(),
        name: step.name.to_owned(),
        input,
        deadline_ms: step.deadline_ms.and_then(DeadlineMs::new),
        permission: None,
        traceparent: None,
    };
    harness.send(&call.into()).await?;
    let mut cancel = step.cancel;
    loop {
        let progress = match harness.next_of(&tool_call_id).await? {
            CallEvent::Result(result) => return Ok(result),
            CallEvent::Progress(progress) => progress,
        };
        for line in progress.message.lines() {
            say!("{DIM}  … {line}{DIM:#}");
        }
        if std::mem::take(&mut cancel) {
            say!("{CALL}  cancel{CALL:#}");
            let (session_id, tool_call_id) = (session_id.clone(), tool_call_id.clone());
            let cancel = ToolCancel {
                session_id,
                tool_call_id,
                reason: None,
            };
            harness.send(&cancel.into()).await?;
        }
    }
}

/// Shows a result; returns whether it is as it should be.
fn show(step: &Step, result: &ToolResult, took: Duration) -> Result<bool, Failure> {
    let mut texts = result.content.iter().map(|block| match block {
        ContentBlock::Text { text } => text.plain(),
        ContentBlock::Image { .. } => "(an image)".to_owned(),
    });
    let data = texts.next().unwrap_or_default();
    for line in data.lines() {
        say!("  {line}");
    }
    for note in texts {
        say!("{DIM}  note: {note}{DIM:#}");
    }
    let right = result.outcome == step.outcome
        && result.is_error == step.is_error
        && data.contains(step.holds);
    let (style, mark) = if right { (GOOD, "ok") } else { (BAD, "WRONG") };
    say!(
        "{style}  {mark}: {:?}{} in {} ms{style:#}",
        result.outcome,
        if result.is_error { ", an error" } else { "" },
        took.as_millis()
    );
    if !right {
        say!(
            "{BAD}  expected {:?} with {:?} in block 0{BAD:#}",
            step.outcome,
            step.holds
        );
    }
    Ok(right)
}
