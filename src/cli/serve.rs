//! `serve`: a daemon that harnesses dial.

use std::process::ExitCode;
use std::sync::Arc;

use super::{Failure, host, lifecycle, print};
use crate::daemon::Daemon;
use crate::dispatch::BuiltIn;

/// Serves until a signal says to stop.
pub(super) fn run(args: host::ConfigArgs) -> Result<ExitCode, Failure> {
    lifecycle::run(args, |mut machine, config| {
        let state = host::open_state(config, machine.workspace().root());
        let (key, state) = host::key_to_ask_for(config, state)?;
        machine.remember(state);
        let (daemon, address) = Daemon::listen(machine, config, key, Arc::new(BuiltIn))?;
        print::line(format_args!("listening on ws://{address}"))?;
        tracing::info!(%address, "serving");
        Ok(daemon)
    })
}
