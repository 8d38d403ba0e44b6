//! `describe`: what would be advertised, without a socket.

use std::process::ExitCode;

use super::{Failure, host, print};
use crate::config::Config;
use crate::daemon::Machine;
use crate::wire::{ToHarness, encode};

/// Prints the `executor.capabilities.update` that a harness would get.
pub(super) fn run(args: &host::ConfigArgs) -> Result<ExitCode, Failure> {
    let config = Config::new(args.settings()?)?;
    let mut machine = Machine::probe(&config, host::environment(), host::user())?;
    machine.remember(host::open_state(&config, machine.workspace().root()));
    let update = ToHarness::from(machine.offer(&config.tools));
    let text = encode(&update)
        .and_then(|text| serde_json::from_str::<serde_json::Value>(&text))
        .and_then(|value| serde_json::to_string_pretty(&value))
        .map_err(std::io::Error::from)?;
    print::line(text)?;
    Ok(ExitCode::SUCCESS)
}
