//! Puts the rooms together: a hub over a workspace, and a listener in front of it.

mod alive;

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, interval, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::dispatch::{Facts, Harnesses, Hub, Rooms, ToolPolicy, Toolbox, offer};
use crate::health::Phase;
use crate::journal::{Journal, Recovered};
use crate::limits::Limits;
use crate::net::{Access, IoThread, Target};
use crate::process::{ProcessConfig, Processes};
use crate::state::{StateDir, StateError};
use crate::stop::Stop;
use crate::telemetry::chain;
use crate::wire::CapabilitiesUpdate;
use crate::workspace::{OpenError, Workspace};
use alive::Alive;

/// Why a daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The workspace cannot be opened.
    #[error(transparent)]
    Workspace(#[from] OpenError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel gives no random bytes.
    #[error("the kernel gives no random bytes: {0}")]
    Random(getrandom::Error),
}

/// The process and file rooms over one workspace, and what is known of the machine.
#[derive(Debug, Clone)]
pub struct Machine {
    facts: Facts,
    limits: Arc<Limits>,
    /// Taken by the first hub.
    recovered: Arc<Mutex<Recovered>>,
    /// Held, and with it locked, for as long as anybody may write there.
    state: Option<Arc<StateDir>>,
}

impl Machine {
    /// Opens the workspace and probes what is to be advertised.
    ///
    /// `base_env` is what the daemon was started with, `user` the name that calls run as.
    ///
    /// # Errors
    /// [`StartError::Workspace`].
    pub fn probe(
        config: &Config,
        base_env: Vec<(OsString, OsString)>,
        user: String,
    ) -> Result<Self, StartError> {
        let limits = Arc::new(config.limits.clone());
        let workspace = Workspace::open(&config.workspace, &limits)?;
        let choices = ProcessConfig {
            background: config.background,
        };
        let processes = Processes::with_config(&limits, base_env, choices);
        Ok(Self {
            facts: Facts {
                user,
                workspace,
                processes,
                journal: Journal::memory("no state directory is used"),
            },
            limits,
            recovered: Arc::default(),
            state: None,
        })
    }

    /// Remembers calls in a state directory from now on, and takes up what it holds. Where there is none, they are
    /// remembered in memory, and the reason is logged and advertised.
    pub fn remember(&mut self, state: Result<StateDir, StateError>) {
        let journal = match state {
            Ok(state) => {
                let root = self.facts.workspace.root();
                let (journal, recovered) = Journal::open(state.path(), root, &self.limits);
                self.recovered = Arc::new(Mutex::new(recovered));
                self.state = Some(Arc::new(state));
                journal
            }
            Err(error) => Journal::memory(chain(&error)),
        };
        if let Some(reason) = journal.lost() {
            tracing::warn!(reason, "a restart of this daemon forgets its calls");
        }
        self.facts.journal = journal;
    }

    /// Returns what would be advertised under a policy.
    pub fn offer(&self, policy: &ToolPolicy) -> CapabilitiesUpdate {
        offer(policy, &self.facts, &self.limits)
    }

    /// Returns the shell's absolute path, where there is one.
    pub fn shell(&self) -> Option<&Path> {
        self.facts.processes.shell()
    }

    /// Runs the login shell once and returns how long its environment took.
    ///
    /// # Errors
    /// There is no shell, or its start-up files fail or hang.
    pub async fn login_time(&self) -> io::Result<Duration> {
        self.facts.processes.login_time().await
    }

    fn hub(
        &self,
        config: &Config,
        toolbox: Arc<dyn Toolbox>,
        harnesses: Harnesses,
    ) -> Result<Hub, StartError> {
        let rooms = Rooms {
            workspace: self.facts.workspace.clone(),
            processes: self.facts.processes.clone(),
            toolbox,
            environment_id: config.environment_id.clone(),
        };
        let recovered = std::mem::take(
            &mut *self
                .recovered
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        Hub::new(
            &self.limits,
            rooms,
            harnesses,
            self.offer(&config.tools),
            self.facts.journal.clone(),
            recovered,
        )
        .map_err(StartError::Random)
    }

    /// Returns the workspace.
    pub fn workspace(&self) -> &Workspace {
        &self.facts.workspace
    }
}

/// A daemon that has its place in the world but serves nobody yet.
#[derive(Debug)]
pub struct Daemon {
    machine: Machine,
    hub: Hub,
    front: Front,
    alive: Option<Alive>,
}

/// Where harnesses come from.
enum Front {
    /// They dial.
    Listen(TcpListener, Access),
    /// There is one, and it is dialled.
    Dial(Target, Box<dyn Fn() + Send>),
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Listen(listener, access) => f
                .debug_tuple("Listen")
                .field(listener)
                .field(access)
                .finish(),
            Self::Dial(target, _) => f.debug_tuple("Dial").field(target).finish_non_exhaustive(),
        }
    }
}

impl Daemon {
    /// Binds the address, and returns it with its true port. Calls will run on the current runtime.
    ///
    /// # Errors
    /// [`StartError`] names what is in the way.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn listen(
        machine: Machine,
        config: &Config,
        key: Option<String>,
        toolbox: Arc<dyn Toolbox>,
    ) -> Result<(Self, SocketAddr), StartError> {
        let hub = machine.hub(config, toolbox, Harnesses::Many)?;
        let failed = |source| StartError::Listen {
            address: config.listen,
            source,
        };
        let listener = TcpListener::bind(config.listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let access = Access {
            key,
            allowed_origins: config.allowed_origins.clone(),
        };
        Ok((
            Self {
                machine,
                hub,
                front: Front::Listen(listener, access),
                alive: None,
            },
            address,
        ))
    }

    /// Makes a daemon that dials its harness; `connected` is called each time that a connection is made. Calls will
    /// run on the current runtime.
    ///
    /// # Errors
    /// [`StartError`] names what is in the way.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn dial(
        machine: Machine,
        config: &Config,
        target: Target,
        toolbox: Arc<dyn Toolbox>,
        connected: impl Fn() + Send + 'static,
    ) -> Result<Self, StartError> {
        let hub = machine.hub(config, toolbox, Harnesses::One)?;
        Ok(Self {
            machine,
            hub,
            front: Front::Dial(target, Box::new(connected)),
            alive: None,
        })
    }

    /// Returns a handle that changes what is offered while the daemon runs.
    pub fn offers(&self) -> Offers {
        Offers {
            machine: self.machine.clone(),
            hub: self.hub.clone(),
        }
    }

    /// Has `show` called every so often, for as long as the threads of connections and calls prove to work.
    #[must_use]
    pub fn showing_life(mut self, every: Duration, show: impl Fn() + Send + 'static) -> Self {
        let show = Box::new(show);
        self.alive = Some(Alive { every, show });
        self
    }

    /// Returns the hub, to be looked at while the daemon runs.
    pub fn hub(&self) -> Hub {
        self.hub.clone()
    }

    /// Serves until `stop`, whose reason is told to the harnesses, then stops in order; `hurry` shortens that.
    ///
    /// # Errors
    /// The listener failed.
    pub async fn run(
        self,
        stop: impl Future<Output = &'static str> + Send,
        hurry: CancellationToken,
    ) -> io::Result<()> {
        let limits = Arc::clone(&self.machine.limits);
        let stop_accepting = CancellationToken::new();
        let (hub, stopping) = (self.hub.clone(), stop_accepting.clone());
        let mut connections = match self.front {
            Front::Listen(listener, access) => {
                IoThread::accept(listener, hub, access, Arc::clone(&limits), stopping)?
            }
            Front::Dial(target, connected) => {
                IoThread::dial(target, hub, Arc::clone(&limits), stopping, connected)?
            }
        };
        let upkeep = async {
            // Ahead of the first command, which would otherwise wait for it.
            let facts = &self.machine.facts;
            facts.processes.warm_up().await;
            clear_leftovers(&facts.workspace, &limits).await;
            let pause =
                (limits.session_ttl / 4).clamp(Duration::from_secs(1), Duration::from_secs(30));
            let mut tick = interval(pause);
            loop {
                tick.tick().await;
                self.hub.expire_sessions();
                self.hub.note_alive();
            }
        };
        let watch = async {
            let reason = self.machine.facts.journal.expect_loss().await;
            self.hub.journal_lost(reason);
            std::future::pending::<()>().await;
        };
        let life = alive::prove(self.alive, connections.pulse());
        self.hub.health().set_phase(Phase::Serving);
        let reason = tokio::select! {
            reason = stop => reason,
            failed = connections.ended() => return failed,
            () = upkeep => "unreachable",
            () = watch => "unreachable",
            () = life => "unreachable",
        };
        tracing::info!(reason, "stopping");
        // One deadline for the whole stop: what its first parts do not need is left for the last messages.
        let whole = limits.drain_timeout + limits.kill_grace + limits.flush_timeout;
        let until = Instant::now() + whole;
        stop_accepting.cancel();
        self.hub.shut_down(reason, &hurry).await;
        let longest = Instant::now() + limits.flush_timeout + limits.close_timeout;
        let shortest = Instant::now() + limits.flush_timeout / 4;
        let flushed = until.min(longest).max(shortest);
        if timeout_at(flushed, connections.ended()).await.is_err() {
            tracing::warn!("a harness did not read its last messages in time");
        }
        self.machine.facts.journal.flush();
        tracing::info!("stopped");
        Ok(())
    }
}

/// Changes what a running daemon offers.
#[derive(Debug, Clone)]
pub struct Offers {
    machine: Machine,
    hub: Hub,
}

impl Offers {
    /// Offers what a policy allows from now on; connections are told where that differs.
    pub fn set(&self, policy: &ToolPolicy) {
        self.hub.reoffer(self.machine.offer(policy));
    }
}

/// Removes what a killed daemon left of its unfinished writes.
async fn clear_leftovers(workspace: &Workspace, limits: &Limits) {
    let (stop, time) = (Stop::new(), limits.leftovers_time);
    let job_workspace = workspace.clone();
    let job = move |stop: &Stop| job_workspace.remove_leftovers(time, stop);
    match workspace.run_blocking(&stop, job).await {
        Ok(0) | Err(_) => {}
        Ok(removed) => tracing::info!(removed, "files of unfinished writes were removed"),
    }
}
