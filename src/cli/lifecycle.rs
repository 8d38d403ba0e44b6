//! The life of a daemon process, whichever way harnesses meet it: guarded, configured, stopped by signals.

use std::process::ExitCode;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::Failure;
use super::host::{self, ConfigArgs};
use crate::config::Config;
use crate::daemon::{Daemon, Machine, Offers};
use crate::process;
use crate::shutdown::{Signal, Signals};
use crate::telemetry;

/// Runs what `start` makes until a signal says to stop.
///
/// The first start only watches over a second one, which is the daemon: it gives up the terminal in a session of its own,
/// and what it leaves behind when it is killed is ended by the first.
pub(super) fn run(
    args: ConfigArgs,
    start: impl FnOnce(Machine, &Config) -> Result<Daemon, Failure>,
) -> Result<ExitCode, Failure> {
    let mut environment = host::environment();
    let Some(guardian) = process::take_guardian(&mut environment) else {
        let code = process::guard(std::env::args_os().skip(1), environment)?;
        return Ok(ExitCode::from(code));
    };
    process::detach(guardian)?;
    process::protect_self()?;
    let config = Config::new(args.settings()?)?;
    let _log = telemetry::init(config.log_format, config.log_level)?;
    let machine = Machine::probe(&config, environment, host::user())?;
    let runtime = super::runtime()?;
    let served = runtime.block_on(async {
        let signals = Signals::new()?;
        let daemon = start(machine, &config)?;
        let (stopped, stop) = oneshot::channel();
        let hurry = CancellationToken::new();
        let watch = watch(signals, args, daemon.offers(), stopped, hurry.clone());
        let watching = AbortOnDropHandle::new(tokio::spawn(watch));
        daemon
            .run(
                async { stop.await.unwrap_or("its signals are lost") },
                hurry,
            )
            .await?;
        drop(watching);
        Ok::<_, Failure>(())
    });
    // A job that hangs in the kernel must not hold up the exit.
    runtime.shutdown_timeout(config.limits.close_timeout);
    served.map(|()| ExitCode::SUCCESS)
}

/// Acts on each signal: the first to stop begins the orderly stop, a second one skips its waits.
#[expect(clippy::infinite_loop, reason = "it is aborted with the daemon")]
async fn watch(
    mut signals: Signals,
    args: ConfigArgs,
    offers: Offers,
    stopped: oneshot::Sender<&'static str>,
    hurry: CancellationToken,
) {
    let mut stopped = Some(stopped);
    loop {
        match (signals.next().await, stopped.take()) {
            (Signal::Stop(name), Some(stopped)) => {
                if stopped.send(name).is_err() {
                    tracing::debug!("the daemon had stopped before the signal");
                }
            }
            (Signal::Stop(_), None) => hurry.cancel(),
            (Signal::Reload, waiting) => {
                stopped = waiting;
                reload(&args, &offers);
            }
        }
    }
}

/// Reads the configuration file again. What is wrong with it is logged, and the old settings stay.
fn reload(args: &ConfigArgs, offers: &Offers) {
    match args
        .settings()
        .and_then(|settings| Ok(Config::new(settings)?))
    {
        Ok(config) => {
            offers.set(&config.tools);
            tracing::info!(
                "the configuration was read again: `disable` and `read_only` are in force, the rest needs a restart"
            );
        }
        Err(failure) => tracing::error!(
            reason = failure.sentence,
            "the configuration was not reloaded"
        ),
    }
}
