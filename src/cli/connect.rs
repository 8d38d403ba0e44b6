//! `connect`: a daemon that dials its harness.

use std::process::ExitCode;
use std::sync::{Arc, Once};

use super::{Failure, host, lifecycle, print};
use crate::config::{Config, KeySource};
use crate::daemon::Daemon;
use crate::dispatch::BuiltIn;
use crate::net::Target;

/// Dials, again and again, until a signal says to stop.
pub(super) fn run(args: host::ConfigArgs) -> Result<ExitCode, Failure> {
    lifecycle::run(args, |mut machine, config| {
        let target = target(config)?;
        machine.remember(host::open_state(config, machine.workspace().root()));
        let (shown, once) = (target.shown(), Once::new());
        let connected = move || {
            once.call_once(|| {
                if let Err(failure) = print::line(format_args!("connected to {shown}")) {
                    tracing::error!(
                        reason = failure.sentence,
                        "the first line could not be printed"
                    );
                }
            });
        };
        let daemon = Daemon::dial(machine, config, target, Arc::new(BuiltIn), connected)?;
        Ok(daemon)
    })
}

fn target(config: &Config) -> Result<Target, Failure> {
    let url = config.harness_url.as_deref().ok_or_else(|| {
        Failure::usage("no harness is named; give --harness-url or set BMA_HARNESS_URL")
    })?;
    let key = match &config.key {
        KeySource::None => None,
        KeySource::File(path) => {
            host::warn_of_wide_mode(path);
            Some(host::key_in_file(path)?)
        }
        KeySource::Default => Some(host::key_of_environment()?.ok_or_else(|| {
            Failure::usage("no key is known for the harness; set BMA_ENVIRONMENT_KEY, or give --key-file or --no-key")
        })?),
    };
    let target = Target::new(url, key, config.environment_id.clone())?
        .allowing_plaintext(config.allow_plaintext);
    target
        .check()
        .map_err(|error| Failure::usage(error.to_string()))?;
    host::trusting(target, config.ca_file.as_deref())
}
