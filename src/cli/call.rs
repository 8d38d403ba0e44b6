//! `call`: the harness end, once.

use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value};

use super::{EXIT_NO_RESULT, Failure, host, print};
use crate::harness::{CallEvent, Harness, HarnessError};
use crate::net::Target;
use crate::shutdown::{Signal, Signals};
use crate::state;
use crate::telemetry::chain;
use crate::wire::{
    ContentBlock, DeadlineMs, SessionClose, SessionId, ToHarness, ToolCall, ToolCallId, ToolCancel,
    ToolResult, decode_object,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the tool
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// Its input as a JSON object; `-` reads it from standard input [default: {}]
    input: Option<String>,
    /// Show the advertised tools instead
    #[arg(long, conflicts_with_all = ["name", "input"])]
    list: bool,
    /// Where the executor listens
    #[arg(
        long,
        value_name = "URL",
        default_value = "ws://127.0.0.1:8787",
        env = "BMA_EXECUTOR_URL"
    )]
    url: String,
    /// Session to use [default: one of its own, closed afterwards]
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    session: Option<SessionId>,
    /// Id of the call [default: a random one]
    #[arg(long, value_name = "ID", value_parser = parse_call_id)]
    id: Option<ToolCallId>,
    /// When the call must have ended, in milliseconds from now [default: never]
    #[arg(long, value_name = "N", value_parser = parse_deadline)]
    deadline_ms: Option<DeadlineMs>,
    /// File with the bearer key [default: `BMA_ENVIRONMENT_KEY`, else the key in the state directory]
    #[arg(long, value_name = "FILE", env = "BMA_EXECUTOR_KEY_FILE")]
    key_file: Option<PathBuf>,
    /// Workspace of the executor, to find its state directory [default: the current directory]
    #[arg(long, value_name = "DIR", env = "BMA_EXECUTOR_WORKSPACE")]
    workspace: Option<PathBuf>,
    /// State directory of the executor [default: by its workspace]
    #[arg(long, value_name = "DIR", env = "BMA_EXECUTOR_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// Certificates (PEM) to trust besides the machine's own [default: none]
    #[arg(long, value_name = "FILE", env = "BMA_EXECUTOR_CA_FILE")]
    ca_file: Option<PathBuf>,
    /// Dial an address other than loopback without TLS
    #[arg(long)]
    allow_plaintext: bool,
}

/// Calls one tool and prints what came of it.
pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let input = input(args.input.as_deref())?;
    let target = Target::new(&args.url, key(args)?, None)?.allowing_plaintext(args.allow_plaintext);
    let target = host::trusting(target, args.ca_file.as_deref())?;
    super::runtime()?.block_on(async {
        let harness = Harness::connect(&target).await?;
        if args.list {
            print_tools(&harness)?;
            return Ok(ExitCode::SUCCESS);
        }
        call(harness, args, input).await
    })
}

async fn call(
    mut harness: Harness,
    args: &Args,
    input: Map<String, Value>,
) -> Result<ExitCode, Failure> {
    let (own_session, own_id) = (random_name()?, random_name()?);
    let session_id = args
        .session
        .clone()
        .map_or_else(|| SessionId::new(&own_session), Ok);
    let tool_call_id = args.id.clone().map_or_else(|| ToolCallId::new(&own_id), Ok);
    let session_id = session_id.map_err(|error| Failure::usage(error.to_string()))?;
    let tool_call_id = tool_call_id.map_err(|error| Failure::usage(error.to_string()))?;
    let name = args.name.clone().unwrap_or_default();
    let spinner = spinner(&name);
    let message = ToolCall {
        session_id: session_id.clone(),
        tool_call_id: tool_call_id.clone(),
        name,
        input,
        deadline_ms: args.deadline_ms,
        permission: None,
        traceparent: None,
    };
    harness.send(&message.into()).await?;
    let result = result(&mut harness, &session_id, &tool_call_id, &spinner).await?;
    spinner.finish_and_clear();
    let printed = print_result(&result);
    // The result is what was asked for; whatever happens to the connection now changes nothing about it.
    if args.session.is_none()
        && let Err(error) = close_session(&mut harness, session_id).await
    {
        tracing::debug!(%error, "the session was not closed in order");
    }
    printed?;
    Ok(if result.is_error {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Waits for the result. Ctrl-C cancels the call, whose result then comes soon; a second one gives it up.
async fn result(
    harness: &mut Harness,
    session_id: &SessionId,
    call: &ToolCallId,
    spinner: &ProgressBar,
) -> Result<ToolResult, Failure> {
    let mut signals = Signals::new()?;
    let mut cancelled = false;
    loop {
        let event = tokio::select! {
            biased; // A flood of progress must not keep a signal waiting.
            signal = signals.next() => match signal {
                Signal::Reload => continue,
                Signal::Stop(name) if cancelled => {
                    return Err(Failure { code: EXIT_NO_RESULT, sentence: format!("given up after a second {name}") });
                }
                Signal::Stop(_) => {
                    cancelled = true;
                    let (session_id, tool_call_id) = (session_id.clone(), call.clone());
                    harness.send(&ToolCancel { session_id, tool_call_id, reason: None }.into()).await?;
                    continue;
                }
            },
            event = harness.next_of(call) => event?,
        };
        match event {
            CallEvent::Progress(progress) => show_progress(spinner, &progress.message),
            CallEvent::Result(result) => return Ok(result),
        }
    }
}

/// Closes the session of this call; its background processes have ended when the answer comes.
async fn close_session(harness: &mut Harness, session_id: SessionId) -> Result<(), HarnessError> {
    harness
        .send(
            &SessionClose {
                session_id: session_id.clone(),
            }
            .into(),
        )
        .await?;
    loop {
        if let ToHarness::SessionClosed(closed) = harness.next().await?
            && closed.session_id == session_id
        {
            return Ok(());
        }
    }
}

fn random_name() -> Result<String, Failure> {
    let token = crate::secret::token().map_err(std::io::Error::other)?;
    Ok(format!("call-{}", token.get(..16).unwrap_or(&token)))
}

fn spinner(name: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg}")
        .unwrap_or_else(|_invalid| ProgressStyle::default_spinner());
    let spinner = ProgressBar::new_spinner()
        .with_style(style)
        .with_prefix(name.to_owned());
    spinner.enable_steady_tick(std::time::Duration::from_millis(100));
    spinner
}

fn show_progress(spinner: &ProgressBar, message: &str) {
    if spinner.is_hidden() {
        anstream::eprint!("{message}");
    } else if let Some(line) = message.lines().rfind(|line| !line.trim().is_empty()) {
        spinner.set_message(line.to_owned());
    }
}

/// Prints block 0 to standard output and the notes to standard error.
fn print_result(result: &ToolResult) -> Result<(), Failure> {
    for (at, block) in result.content.iter().enumerate() {
        match block {
            ContentBlock::Text { text } if at == 0 => print::bytes(text.plain().as_bytes())?,
            ContentBlock::Text { text } => anstream::eprintln!("{text}"),
            ContentBlock::Image { .. } => {
                anstream::eprintln!("(an image, which is not shown here)");
            }
        }
    }
    Ok(())
}

fn print_tools(harness: &Harness) -> Result<(), Failure> {
    for tool in &harness.capabilities().tools {
        match &tool.reason {
            Some(reason) => print::line(format_args!("{} (not available: {reason})", tool.name))?,
            None => print::line(&tool.name)?,
        }
    }
    Ok(())
}

fn input(text: Option<&str>) -> Result<Map<String, Value>, Failure> {
    let mut piped = String::new();
    let text = match text {
        None => "{}",
        Some("-") => {
            let read = std::io::stdin().read_to_string(&mut piped);
            read.map_err(|error| {
                Failure::usage(format!("standard input cannot be taken: {error}"))
            })?;
            &piped
        }
        Some(text) => text,
    };
    decode_object(text)
        .map_err(|error| Failure::usage(format!("the input must be a JSON object: {error}")))
}

/// Finds the key as the daemon does: a named file, the environment, the state directory.
fn key(args: &Args) -> Result<Option<String>, Failure> {
    if let Some(path) = &args.key_file {
        let key = state::read_key(path);
        return key.map(Some).map_err(|error| Failure::usage(chain(&error)));
    }
    if let Some(key) = host::key_of_environment()? {
        return Ok(Some(key));
    }
    let workspace = args.workspace.clone().unwrap_or_else(|| PathBuf::from("."));
    let workspace = workspace.canonicalize().map_err(|error| {
        Failure::usage(format!(
            "the workspace `{}` cannot be found: {error}",
            workspace.display()
        ))
    })?;
    let path = state::key_path(&host::state_dir(args.state_dir.as_ref(), &workspace)?);
    match state::read_key(&path) {
        Ok(key) => Ok(Some(key)),
        // The daemon may ask for none.
        Err(state::StateError::KeyFile { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn parse_id(text: &str) -> Result<SessionId, String> {
    SessionId::new(text).map_err(|error| error.to_string())
}

fn parse_call_id(text: &str) -> Result<ToolCallId, String> {
    ToolCallId::new(text).map_err(|error| error.to_string())
}

fn parse_deadline(text: &str) -> Result<DeadlineMs, String> {
    text.parse()
        .ok()
        .and_then(DeadlineMs::new)
        .ok_or_else(|| "expected a whole number of milliseconds above 0".to_owned())
}
