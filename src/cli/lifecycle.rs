//! The life of a daemon process, whichever way harnesses meet it: guarded, configured, stopped by signals.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::Failure;
use super::host::{self, ConfigArgs};
use crate::admin::{AdminPort, AdminThread};
use crate::config::{Config, Key, changed};
use crate::daemon::{Daemon, Machine, Offers};
use crate::process::{self, Manager, Told};
use crate::shutdown::{Signal, Signals};
use crate::telemetry::{self, LevelHandle};

/// Runs what `start` makes until a signal says to stop.
///
/// The first start only watches over a second one, which is the daemon: it gives up the terminal in a session of its own,
/// and what it leaves behind when it is killed is ended by the first.
pub(super) fn run(
    mut args: ConfigArgs,
    start: impl FnOnce(Machine, &Config) -> Result<Daemon, Failure>,
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
    let (_log, level) = telemetry::init(config.log_format, config.log_level)?;
    let admin = config.admin.map(AdminPort::bind).transpose()?;
    let machine = Machine::probe(&config, environment, host::user())?;
    let runtime = super::runtime()?;
    let served = runtime.block_on(async {
        let signals = Signals::new()?;
        let daemon = start(machine, &config)?;
        // It is read again on SIGHUP, and this process stands elsewhere for moments from now on.
        args.config = args.config.map(std::path::absolute).transpose()?;
        let admin = admin.map(|port| serve_admin(port, &daemon, &config));
        let admin = admin.transpose()?;
        let (stopped, stop) = oneshot::channel();
        let hurry = CancellationToken::new();
        let reload = Reload {
            args,
            in_force: config.clone(),
            offers: daemon.offers(),
            level,
        };
        let watch = watch(
            signals,
            reload,
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
        drop((watching, admin));
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
    mut reload: Reload,
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
                reload.again();
                if told {
                    manager.tell(Told::Ready);
                }
            }
        }
    }
}

fn serve_admin(port: AdminPort, daemon: &Daemon, config: &Config) -> io::Result<AdminThread> {
    let address = port.address();
    let thread = port.start(daemon.hub(), &Arc::new(config.limits.clone()))?;
    tracing::info!(%address, "the admin port answers");
    Ok(thread)
}

/// What SIGHUP reads again and changes.
struct Reload {
    args: ConfigArgs,
    in_force: Config,
    offers: Offers,
    level: LevelHandle,
}

impl Reload {
    /// Reads the configuration file again. What is wrong with it is logged, and the old settings stay.
    fn again(&mut self) {
        let read = self.args.settings();
        match read.and_then(|settings| Ok(Config::new(settings)?)) {
            Ok(config) => self.take(config),
            Err(failure) => tracing::error!(
                reason = failure.sentence,
                "the configuration was not reloaded"
            ),
        }
    }

    /// Takes what a running daemon can take, and says by key what it has taken and what it has not.
    fn take(&mut self, config: Config) {
        let (taken, kept): (Vec<&Key>, Vec<&Key>) = changed(&self.in_force, &config)
            .into_iter()
            .partition(|key| key.reloads);
        self.offers.set(&config.tools);
        self.level.set(config.log_level);
        self.in_force.tools = config.tools;
        self.in_force.log_level = config.log_level;
        let names = |keys: &[&Key]| {
            let names: Vec<_> = keys.iter().map(|key| key.name).collect();
            names.join(", ")
        };
        if taken.is_empty() {
            tracing::info!(
                "the configuration was read again; nothing is different that can be changed now"
            );
        } else {
            tracing::info!(changed = names(&taken), "the configuration was read again");
        }
        if !kept.is_empty() {
            tracing::warn!(
                keys = names(&kept),
                "these settings are different now and need a restart; the old values stay in force"
            );
        }
    }
}
