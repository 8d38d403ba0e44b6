//! The only door to programs: one supervised tree of processes for each command.
//!
//! A command is built (`spec`) from a captured login environment (`base_env`, `login_env`, `login_shell`, `functions`, `variables`),
//! started as a marked child (`launch`, `children`), watched until it ends (`watched`, `supervise`) while its output is taken (`pipes`, `output`, `capture`, `feed`, `spill`);
//! its processes are found in the process table (`table`, `tree`) wherever they went. What it leaves running belongs
//! to its session (`session`). `guardian` watches over the daemon itself, `manager` leads to whoever started that. Nothing in this room knows of tools, sockets or JSON.

mod base_env;
mod capture;
mod children;
mod feed;
mod functions;
mod guardian;
mod launch;
mod login_env;
mod login_shell;
mod manager;
mod output;
mod pipes;
mod protect;
mod session;
mod spec;
mod spill;
mod supervise;
mod table;
mod tree;
mod usage;
mod variables;
mod watched;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) use base_env::own_entry;
pub(crate) use capture::Capture;
pub use children::unmarked;
pub use guardian::{GUARDIAN_VARIABLE, guard, take_guardian};
pub use manager::{Manager, Told};
pub use pipes::MOST_HELD;
pub use protect::{Control, detach, probe_control, protect_self};
pub use session::SessionProcesses;
pub(crate) use session::{Call, RunError};
pub(crate) use spec::Spec;
pub(crate) use supervise::Finished;
pub use usage::{OwnUsage, own_usage};

use crate::limits::Limits;
use login_env::LoginEnv;

/// How often orphans are looked at while there are any.
const ORPHAN_LOOK: Duration = Duration::from_millis(200);

/// Runs commands for the whole daemon: login environment, orphans, bounds.
#[derive(Debug, Clone)]
pub struct Processes(Arc<Shared>);

/// What becomes of processes that outlive their shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Background {
    /// They stay until the session ends.
    #[default]
    Keep,
    /// They end with the shell.
    Kill,
}

/// The choices that configuration leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessConfig {
    /// What becomes of processes that outlive their shell.
    pub background: Background,
}

/// How escaped descendants are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessControl {
    /// By a control group for each call.
    Cgroup,
    /// As adopted orphans of this process.
    Subreaper,
}

/// What all sessions share.
#[derive(Debug)]
struct Shared {
    limits: Arc<Limits>,
    config: ProcessConfig,
    shell: Option<PathBuf>,
    login: Arc<LoginEnv>,
    watching: AtomicBool,
    /// Set by whoever may have left an orphan; taken back by the watcher before it looks.
    look_again: AtomicBool,
}

impl Processes {
    /// Prepares the process room. `base_env` is what the daemon was started with; its `BMA_*` members never reach a command.
    ///
    /// While a command starts, this process stands in the command's directory: a path that is not absolute must not be used
    /// beside that.
    pub fn new(limits: &Arc<Limits>, base_env: Vec<(OsString, OsString)>) -> Self {
        Self::with_config(limits, base_env, ProcessConfig::default())
    }

    /// Prepares the process room with other choices than the default ones.
    pub fn with_config(
        limits: &Arc<Limits>,
        base_env: Vec<(OsString, OsString)>,
        config: ProcessConfig,
    ) -> Self {
        protect::keep_descriptors();
        if let Err(error) = protect::adopt_orphans() {
            tracing::warn!(%error, "processes that leave their command's tree cannot be found");
        }
        let given_path = base_env
            .iter()
            .find(|(name, value)| name == "PATH" && !value.is_empty())
            .map(|(_, value)| value.clone());
        let base = base_env::build(base_env);
        Self(Arc::new(Shared {
            limits: Arc::clone(limits),
            config,
            shell: base_env::find_shell(&base),
            login: Arc::new(LoginEnv::new(base, given_path, Arc::clone(limits))),
            watching: AtomicBool::new(false),
            look_again: AtomicBool::new(false),
        }))
    }

    /// Makes room for one session's commands; `env` comes above the login environment and below a call's own.
    pub fn session(&self, env: Vec<(OsString, OsString)>) -> SessionProcesses {
        SessionProcesses::new(Arc::clone(&self.0), env)
    }

    /// Captures the login environment ahead of the first command.
    pub async fn warm_up(&self) {
        if let Some(shell) = self.shell() {
            self.0.login.get(shell).await;
        }
    }

    /// Runs the login shell once and returns how long its environment took.
    ///
    /// # Errors
    /// There is no shell, or its start-up files fail or hang.
    pub async fn login_time(&self) -> io::Result<Duration> {
        let shell = self
            .shell()
            .ok_or_else(|| io::Error::other("there is no bash"))?;
        let begun = Instant::now();
        self.0.login.capture(shell).await?;
        Ok(begun.elapsed())
    }

    /// Ends what belongs to no session: a login shell that is still running. For the daemon's stop, after the sessions.
    pub async fn close(&self) {
        self.0.login.close().await;
    }

    /// Returns how escaped descendants are found.
    pub fn control(&self) -> ProcessControl {
        ProcessControl::Subreaper
    }

    /// Returns the shell's absolute path, where there is one.
    pub fn shell(&self) -> Option<&Path> {
        self.0.shell.as_deref()
    }
}

impl Shared {
    fn keeps_background(&self) -> bool {
        self.config.background == Background::Keep
    }

    /// Has orphans reaped from now on, until there are none.
    fn watch_orphans(self: &Arc<Self>) {
        self.look_again.store(true, Ordering::Release);
        if self.watching.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                shared.look_again.store(false, Ordering::Release);
                tokio::time::sleep(ORPHAN_LOOK).await;
                let alive = tokio::task::spawn_blocking(children::reap_adopted).await;
                if alive.is_ok_and(|alive| alive > 0) || shared.look_again.load(Ordering::Acquire) {
                    continue;
                }
                shared.watching.store(false, Ordering::Release);
                // Someone may have asked between the two; whoever takes the flag first goes on.
                let asked = shared.look_again.load(Ordering::Acquire);
                if !asked || shared.watching.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        });
    }
}
