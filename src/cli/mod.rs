//! The command line: the only room that prints, exits and reads the environment.

mod call;
mod config;
mod connect;
mod demo;
mod describe;
mod doctor;
mod healthcheck;
mod host;
mod lifecycle;
mod manual;
mod print;
mod serve;

use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::config::ConfigError;
use crate::telemetry::chain;
use crate::wire::PROTOCOL_VERSIONS;

/// Runs an AI agent's tool calls (bash, files, search) where the code is.
#[derive(Debug, Parser)]
#[command(name = "bma-executor", version, long_version = LONG_VERSION.as_str(), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Listen for harnesses
    Serve(host::ConfigArgs),
    /// Dial a harness, and again whenever the connection is lost
    Connect(host::ConfigArgs),
    /// Call one tool of a running executor
    Call(call::Args),
    /// Print what would be advertised, as JSON
    Describe(host::ConfigArgs),
    /// Print the settings in force, as TOML, each with where it comes from
    Config(host::ConfigArgs),
    /// Look for what the executor needs on this machine, and say how to get what is missing
    Doctor(doctor::Args),
    /// Ask a running executor whether it lives; exit status 0 or 1
    Healthcheck(healthcheck::Args),
    /// Start an executor over a scratch workspace and drive every tool once
    Demo,
    /// Print a completion script
    Completions(manual::CompletionsArgs),
    /// Print a man page
    Man(manual::ManArgs),
}

/// What `--version` tells beyond `-V`: what an operator compares between two machines.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{} (commit {})\nprotocols: {}",
        env!("CARGO_PKG_VERSION"),
        env!("BMA_EXECUTOR_COMMIT"),
        PROTOCOL_VERSIONS.join(", ")
    )
});

/// Wrong usage or configuration, as everywhere.
const EXIT_USAGE: u8 = 2;

/// No result came from an executor.
const EXIT_NO_RESULT: u8 = 3;

/// Why a command ended without doing its work.
#[derive(Debug)]
struct Failure {
    code: u8,
    sentence: String,
}

impl Failure {
    fn usage(sentence: impl Into<String>) -> Self {
        Self {
            code: EXIT_USAGE,
            sentence: sentence.into(),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<crate::harness::HarnessError> for Failure {
    fn from(error: crate::harness::HarnessError) -> Self {
        Self {
            code: EXIT_NO_RESULT,
            sentence: chain(&error),
        }
    }
}

macro_rules! failure_from {
    ($($error:ty),+) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self { code: 1, sentence: chain(&error) }
            }
        }
    )+};
}

impl From<crate::net::TargetError> for Failure {
    fn from(error: crate::net::TargetError) -> Self {
        Self::usage(chain(&error))
    }
}

impl From<crate::daemon::StartError> for Failure {
    fn from(error: crate::daemon::StartError) -> Self {
        let is_usage = matches!(error, crate::daemon::StartError::Workspace(_));
        Self {
            code: if is_usage { EXIT_USAGE } else { 1 },
            sentence: chain(&error),
        }
    }
}

failure_from!(
    crate::admin::AdminError,
    crate::state::StateError,
    std::io::Error
);

/// Runs the command that the arguments ask for.
pub fn run() -> ExitCode {
    let mut command = Cli::command();
    let matches = command.get_matches_mut();
    let cli =
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit());
    let done = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Connect(args) => connect::run(args),
        Command::Call(args) => call::run(&args),
        Command::Describe(args) => describe::run(&args),
        Command::Config(args) => match (command.find_subcommand("config"), matches.subcommand()) {
            (Some(command), Some((_, matches))) => config::run(&args, command, matches),
            _ => Err(Failure::usage("the arguments of `config` are lost")),
        },
        Command::Doctor(args) => doctor::run(&args),
        Command::Healthcheck(args) => healthcheck::run(&args),
        Command::Demo => demo::run(),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
    };
    done.unwrap_or_else(|failure| {
        anstream::eprintln!("bma-executor: {}", failure.sentence);
        ExitCode::from(failure.code)
    })
}

/// Makes the runtime of one command.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    // Calls are watched over here and do their work elsewhere, so one worker goes a long way. Given something to do, it wakes the next
    // one to look for more, which on a small machine takes the processor away from the command that has just been started.
    let processors = std::thread::available_parallelism()?.get();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads((processors / 2).max(1))
        .enable_all()
        .build()
}
