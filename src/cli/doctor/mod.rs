//! `doctor`: looks for everything that the daemon needs or reports of itself, and says how to get what is missing.
//!
//! It starts nothing but one login shell, and what it makes or locks for a look is gone after it.

mod host_checks;
mod machine;
mod places;

use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::host::ConfigArgs;
use super::print::say;
use super::{Failure, print};
use crate::config::Config;

/// What to look for, and how to say it.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON object instead of lines for people
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// What a look came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    /// It is there.
    Ok,
    /// The executor works without it, but less well.
    Warning,
    /// The executor, or a tool that it is to offer, does not work without it.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    status: Status,
    /// What is there, or what is wrong.
    found: String,
    /// How to get it, where it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn is_ok(&self) -> bool {
        self.status == Status::Ok
    }

    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            status: Status::Ok,
            found: found.into(),
            advice: None,
        }
    }

    fn warning(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            check,
            status: Status::Warning,
            found: found.into(),
            advice: Some(advice.into()),
        }
    }

    fn missing(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            status: Status::Missing,
            ..Self::warning(check, found, advice)
        }
    }
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    /// Whether nothing essential is missing.
    ok: bool,
    checks: Vec<Finding>,
}

/// Looks at everything. Exit status 0 where nothing essential is missing, else 1.
pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let config = Config::new(args.config.settings()?)?;
    let mut checks = machine::look(&config)?;
    checks.extend(places::look(&config));
    checks.extend(host_checks::look(&config));
    let ok = checks.iter().all(|found| found.status != Status::Missing);
    let report = Report { ok, checks };
    if args.json {
        let text = serde_json::to_string_pretty(&report).map_err(std::io::Error::from)?;
        print::line(text)?;
    } else {
        show(&report)?;
    }
    Ok(if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn show(report: &Report) -> Result<(), Failure> {
    for found in &report.checks {
        let (word, colour) = match found.status {
            Status::Ok => ("ok", AnsiColor::Green),
            Status::Warning => ("warning", AnsiColor::Yellow),
            Status::Missing => ("missing", AnsiColor::Red),
        };
        let style = Style::new().fg_color(Some(colour.into())).bold();
        say!(
            "{style}{word:<8}{style:#} {:<18} {}",
            found.check,
            found.found
        );
        if let Some(advice) = &found.advice {
            say!("{:<27} -> {advice}", "");
        }
    }
    Ok(())
}
