//! What the environment and the user data base say about this process. Read here and nowhere else.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::Failure;
use crate::config::{Config, KeySource, Settings};
use crate::net::Target;
use crate::process::own_entry;
use crate::state::{self, StateDir, StateError};
use crate::telemetry::chain;

/// The variable with the bearer key (published name).
const KEY_VARIABLE: &str = "BMA_ENVIRONMENT_KEY";

/// Settings of a command that runs or describes an executor.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigArgs {
    /// Configuration file (TOML); its keys are the flags' names with underscores [default: none]
    #[arg(long, value_name = "FILE", env = "BMA_EXECUTOR_CONFIG")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) settings: Settings,
}

impl ConfigArgs {
    /// Returns the settings of flags and environment over those of the file as it is now.
    pub(super) fn settings(&self) -> Result<Settings, Failure> {
        let file = self
            .config
            .as_deref()
            .map(Settings::from_file)
            .transpose()?;
        Ok(self.settings.clone().or(file.unwrap_or_default()))
    }
}

/// Returns the environment that this process was started with.
pub(super) fn environment() -> Vec<(OsString, OsString)> {
    std::env::vars_os().collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the environment"
)]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the name of the user that calls run as, or the number.
pub(super) fn user() -> String {
    own_entry()
        .and_then(|account| account.name.into_string().ok())
        .unwrap_or_else(|| rustix::process::geteuid().as_raw().to_string())
}

/// Returns the directory below which state is kept by default (XDG Base Directory Specification).
fn state_home() -> Result<PathBuf, Failure> {
    let home = || {
        variable("HOME")
            .map(PathBuf::from)
            .or_else(|| own_entry().map(|account| account.home.into()))
    };
    variable("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| home().map(|home| home.join(".local/state")))
        .ok_or_else(|| {
            Failure::usage("no home directory is known to keep state in; name one with --state-dir")
        })
}

/// Returns the state directory of a workspace.
pub(super) fn state_dir(named: Option<&PathBuf>, workspace: &Path) -> Result<PathBuf, Failure> {
    match named {
        Some(path) => Ok(path.clone()),
        None => Ok(state::default_dir(&state_home()?, workspace)),
    }
}

/// Opens the state directory of a daemon, which holds it for as long as it runs.
pub(super) fn open_state(config: &Config, workspace: &Path) -> Result<StateDir, StateError> {
    let path = state_dir(config.state_dir.as_ref(), workspace).ok();
    // The journal is written anew there when the daemon has left the directory that it was started in.
    let Some(path) = path.and_then(|path| std::path::absolute(path).ok()) else {
        return Err(StateError::NoHome);
    };
    if is_inside(&path, workspace) {
        tracing::warn!(
            "the state directory is in the workspace, where the tools can read the key and change the journal; \
             name one outside of it with --state-dir"
        );
    }
    // A daemon whose parent was killed alone stops in order, and its calls must not be run again meanwhile.
    let limits = &config.limits;
    let patience = limits.drain_timeout + limits.kill_grace + limits.flush_timeout;
    let opened = StateDir::open_within(&path, patience);
    if let Some(mode) = state::wide_mode(&path).filter(|_| opened.is_ok()) {
        let mode = format!("{mode:04o}");
        tracing::warn!(
            mode,
            "the state directory may be used by others; set its mode to 0700"
        );
    }
    opened
}

/// Whether a directory, which need not be there yet, is in a workspace.
pub(super) fn is_inside(path: &Path, workspace: &Path) -> bool {
    let there = path.ancestors().find_map(|path| path.canonicalize().ok());
    there.is_some_and(|there| there.starts_with(workspace))
}

/// Returns the key that a daemon asks for. Only where it is kept in the state directory must that be had.
pub(super) fn key_to_ask_for(
    config: &Config,
    state: Result<StateDir, StateError>,
) -> Result<(Option<String>, Result<StateDir, StateError>), Failure> {
    let key = match &config.key {
        KeySource::None => None,
        KeySource::File(path) => {
            warn_of_wide_mode(path);
            Some(key_in_file(path)?)
        }
        KeySource::Default => {
            let key = key_of_environment()?;
            if key.is_none() {
                let state = state?;
                let key = state.key()?;
                warn_of_wide_mode(&state.key_path());
                return Ok((Some(key), Ok(state)));
            }
            key
        }
    };
    Ok((key, state))
}

/// Reads the key from a file that a flag or a setting names.
pub(super) fn key_in_file(path: &Path) -> Result<String, Failure> {
    state::read_key(path).map_err(|error| Failure::usage(chain(&error)))
}

/// Says in the log where others than the executor's user can read the key.
pub(super) fn warn_of_wide_mode(file: &Path) {
    if let Some(mode) = state::wide_mode(file) {
        let mode = format!("{mode:04o}");
        tracing::warn!(
            mode,
            "the key file may be read by others; set its mode to 0600"
        );
    }
}

/// Lets a target trust the certificates in a file.
pub(super) fn trusting(target: Target, file: Option<&Path>) -> Result<Target, Failure> {
    let Some(path) = file else { return Ok(target) };
    #[expect(
        clippy::disallowed_methods,
        reason = "the operator's file, not a workspace's"
    )]
    let pem = std::fs::read(path).map_err(|error| {
        Failure::usage(format!(
            "the file of certificates `{}` cannot be read: {error}",
            path.display()
        ))
    })?;
    Ok(target.trusting(&pem)?)
}

/// Returns the key of the environment.
pub(super) fn key_of_environment() -> Result<Option<String>, Failure> {
    let Some(value) = variable(KEY_VARIABLE) else {
        return Ok(None);
    };
    let key = value
        .to_str()
        .and_then(|value| state::check_key(value.trim()));
    key.map(Some).ok_or_else(|| {
        Failure::usage(format!(
            "{KEY_VARIABLE} must be 16 to 4096 visible ASCII characters"
        ))
    })
}

/// Returns the time zone that the environment names.
pub(super) fn time_zone() -> Option<String> {
    variable("TZ").map(|name| name.to_string_lossy().into_owned())
}

/// Returns a limit of this process's control group, or of the whole machine where it is its root.
pub(super) fn limit_of_group(name: &str) -> Option<u64> {
    let groups = kernel_text("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let own = Path::new("/sys/fs/cgroup").join(own.trim_start_matches('/'));
    // A container may see its own group as the root.
    let read = |group: &Path| kernel_text(group.join(name))?.trim().parse().ok();
    read(&own).or_else(|| read(Path::new("/sys/fs/cgroup")))
}

/// Returns how many bytes of memory the machine can still give.
pub(super) fn available_memory() -> Option<u64> {
    let text = kernel_text("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

#[expect(
    clippy::disallowed_methods,
    reason = "these are the kernel's words about this process, not a workspace's"
)]
fn kernel_text(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()
}
