//! The life of a daemon process, whichever way harnesses meet it: guarded, configured, stopped by signals.

use std::process::ExitCode;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::Failure;
use super::host::{self, ConfigArgs};
use crate::config::Config;
use crate::daemon::{Daemon, Machine, Offers};
use crate::process::{self, Manager, Told};
use crate::shutdown::{Signal, Signals};
use crate::telemetry;

/// Runs what `start` makes until a signal says to stop. What `start` returns beside the daemon is held as long.
///
/// The first start only watches over a second one, which is the daemon: it gives up the terminal in a session of its own,
/// and what it leaves behind when it is killed is ended by the first.
pub(super) fn run<H>(
    args: ConfigArgs,
    start: impl FnOnce(Machine, &Config) -> Result<(Daemon, H), Failure>,
) -> Result<ExitCode, Failure> {
    let mut environment = host::environment();
    let Some(guardian) = process::take_guardian(&mut environment) else {
        let code = process::guard(std::env::args_os().skip(1), environment)?;
        return Ok(ExitCode::from(code));
    };
    process::detach(guardian)?;
    process::protect_self()?;
    let manager = Arc::new(Manager::take(&mut environment)?);
    let config = Config::new(args.settings()?)?;
    let _log = telemetry::init(config.log_format, config.log_level)?;
    let machine = Machine::probe(&config, environment, host::user())?;
    let runtime = super::runtime()?;
    let served = runtime.block_on(async {
        let signals = Signals::new()?;
        let (daemon, held) = start(machine, &config)?;
        let (stopped, stop) = oneshot::channel();
        let hurry = CancellationToken::new();
        let watch = watch(
            signals,
            args,
            daemon.offers(),
            Arc::clone(&manager),
            stopped,
            hurry.clone(),
        );
        let watching = AbortOnDropHandle::new(tokio::spawn(watch));
        let daemon = shown_to(&manager, daemon);
        manager.tell(Told::Ready);
        daemon
            .run(
                async { stop.await.unwrap_or("its signals are lost") },
                hurry,
            )
            .await?;
        drop((watching, held));
        Ok::<_, Failure>(())
    });
    // A job that hangs in the kernel must not hold up the exit.
    runtime.shutdown_timeout(config.limits.close_timeout);
    served.map(|()| ExitCode::SUCCESS)
}

/// Has the daemon show its life to the manager, where that asks for it.
fn shown_to(manager: &Arc<Manager>, daemon: Daemon) -> Daemon {
    let Some(every) = manager.alive_interval() else {
        return daemon;
    };
    let manager = Arc::clone(manager);
    daemon.showing_life(every, move || manager.tell(Told::Alive))
}

/// Acts on each signal: the first to stop begins the orderly stop, a second one skips its waits.
#[expect(clippy::infinite_loop, reason = "it is aborted with the daemon")]
async fn watch(
    mut signals: Signals,
    args: ConfigArgs,
    offers: Offers,
    manager: Arc<Manager>,
    stopped: oneshot::Sender<&'static str>,
    hurry: CancellationToken,
) {
    let mut stopped = Some(stopped);
    loop {
        match (signals.next().await, stopped.take()) {
            (Signal::Stop(name), Some(stopped)) => {
                manager.tell(Told::Stopping);
                if stopped.send(name).is_err() {
                    tracing::debug!("the daemon had stopped before the signal");
                }
            }
            (Signal::Stop(_), None) => hurry.cancel(),
            (Signal::Reload, waiting) => {
                stopped = waiting;
                // A manager that waits for the end would take the word for a new life.
                let told = stopped.is_some();
                if told {
                    manager.tell(Told::Reloading);
                }
                reload(&args, &offers);
                if told {
                    manager.tell(Told::Ready);
                }
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
