//! Logs: on stderr, in text or JSON; ids, sizes and times, never commands, paths of calls, contents or environment.

mod lines;

use std::io;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

pub use lines::LogGuard;

/// How log lines are spelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines: one object per line.
    Json,
}

/// The least serious lines that are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Faults of the executor.
    Error,
    /// What an operator should look at.
    Warn,
    /// One line per call and connection.
    #[default]
    Info,
    /// For finding faults.
    Debug,
    /// Everything.
    Trace,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => Self::OFF,
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// Changes what is logged while the process runs.
#[derive(Debug, Clone)]
pub struct LevelHandle(reload::Handle<LevelFilter, Registry>);

impl LevelHandle {
    /// Logs from a level on.
    pub fn set(&self, level: LogLevel) {
        if let Err(error) = self.0.modify(|filter| *filter = level.into()) {
            tracing::error!(%error, "the level of the log could not be changed");
        }
    }
}

/// Starts logging for the process. A second call changes nothing.
///
/// # Errors
/// The thread that writes cannot be started.
pub fn init(format: LogFormat, level: LogLevel) -> io::Result<(LogGuard, LevelHandle)> {
    let (lines, guard) = lines::start()?;
    let (filter, handle) = reload::Layer::new(LevelFilter::from(level));
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(move || lines.clone())
        .with_target(false)
        .with_ansi(false);
    let registry = tracing_subscriber::registry().with(filter);
    let set = match format {
        LogFormat::Text => registry.with(layer).try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    };
    if let Err(error) = set {
        tracing::debug!(%error, "logging was started before");
    }
    // The payload of a panic can hold contents; where it happened is enough to find it.
    std::panic::set_hook(Box::new(|panic| {
        let at = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        tracing::error!(at, "a panic was caught");
    }));
    Ok((guard, LevelHandle(handle)))
}

/// Spells an error with all its causes, each text once.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}
