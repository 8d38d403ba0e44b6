//! The environment that a login shell would give, captured once and again when a start-up file changes.
//!
//! It must never capture twice for the same start-up files, nor make a command fail for want of a capture.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::base_env::{self, Env};
use super::functions::Login;
use super::login_shell::{self, Found};
use crate::limits::Limits;

/// Longest environment string that the kernel takes (`MAX_ARG_STRLEN`), with room for its end.
const STRING_BYTES: usize = 128 * 1024 - 1;

/// Captures and remembers.
#[derive(Debug)]
pub(super) struct LoginEnv {
    base: Env,
    /// The path that the daemon was started with, where it was given one.
    given_path: Option<OsString>,
    limits: Arc<Limits>,
    cached: Mutex<Option<Arc<Cached>>>,
    /// Held by the one that captures, so that others wait for its result.
    capturing: tokio::sync::Mutex<()>,
    turns: AtomicU64,
    captures: TaskTracker,
    closing: CancellationToken,
}

#[derive(Debug)]
struct Cached {
    /// Counts the captures; a late one must not take the place of a newer.
    turn: u64,
    watched: Vec<(CString, Option<Stamp>)>,
    login: Arc<Login>,
}

/// What changes when a file is changed: device, number, size, time of change in seconds and nanoseconds.
type Stamp = ((u32, u32), u64, u64, i64, u32);

impl LoginEnv {
    pub(super) fn new(base: Env, given_path: Option<OsString>, limits: Arc<Limits>) -> Self {
        Self {
            base,
            given_path,
            limits,
            cached: Mutex::default(),
            capturing: tokio::sync::Mutex::default(),
            turns: AtomicU64::new(0),
            captures: TaskTracker::new(),
            closing: CancellationToken::new(),
        }
    }

    /// Returns the environment; captures it where there is none yet or a start-up file has changed. Where that takes
    /// too long, commands get the daemon's environment until it has come.
    pub(super) async fn get(self: &Arc<Self>, shell: &Path) -> Arc<Login> {
        if let Some(login) = self.current() {
            return login;
        }
        let _turn = self.capturing.lock().await;
        if let Some(login) = self.current() {
            return login;
        }
        // The stamps come first: a change during the capture makes the next command capture again.
        let watched = self.startup_files();
        let turn = self.turns.fetch_add(1, Ordering::AcqRel) + 1;
        let base = Arc::new(Login::unchanged(&self.base));
        let late = Cached {
            turn,
            watched: watched.clone(),
            login: Arc::clone(&base),
        };
        let (this, shell) = (Arc::clone(self), shell.to_owned());
        let capture = self.captures.spawn(async move {
            let login = match this.capture(&shell).await {
                Ok(login) => Arc::new(login),
                Err(error) => {
                    tracing::warn!(%error, "the login environment could not be captured; commands get the daemon's");
                    base
                }
            };
            let new = Cached {
                turn,
                watched,
                login,
            };
            this.store(new, true);
        });
        if tokio::time::timeout(self.limits.login_env_timeout, capture)
            .await
            .is_err()
        {
            tracing::warn!(
                "a start-up file is slow; until it has ended, commands get the daemon's environment"
            );
        }
        self.store(late, false)
    }

    /// Ends a login shell that is still running, after the time that a command would have waited for it: ended in the
    /// middle of its work, a start-up file may leave a lock behind.
    pub(super) async fn close(&self) {
        self.captures.close();
        let ended = self.captures.wait();
        if tokio::time::timeout(self.limits.login_env_timeout, ended)
            .await
            .is_err()
        {
            self.closing.cancel();
            self.captures.wait().await;
        }
    }

    /// Remembers an environment unless a later turn has one, or this turn has one and it is not to be replaced;
    /// returns the one that is remembered.
    fn store(&self, new: Cached, replace: bool) -> Arc<Login> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cached {
            Some(old) if old.turn > new.turn || (old.turn == new.turn && !replace) => {
                Arc::clone(&old.login)
            }
            _ => Arc::clone(&cached.insert(Arc::new(new)).login),
        }
    }

    fn current(&self) -> Option<Arc<Login>> {
        let cached = self
            .cached
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()?;
        let same = cached
            .watched
            .iter()
            .all(|(path, then)| stamp(path) == *then);
        same.then(|| Arc::clone(&cached.login))
    }

    fn startup_files(&self) -> Vec<(CString, Option<Stamp>)> {
        let mut files: Vec<PathBuf> = ["/etc/profile", "/etc/profile.d", "/etc/bash.bashrc"]
            .map(PathBuf::from)
            .into();
        if let Some(home) = self.base.get(OsStr::new("HOME")) {
            let own = [".bash_profile", ".bash_login", ".profile", ".bashrc"];
            files.extend(own.iter().map(|name| Path::new(home).join(name)));
        }
        let parts = std::fs::read_dir("/etc/profile.d").into_iter().flatten();
        files.extend(parts.filter_map(Result::ok).map(|part| part.path()));
        let stamped = |path: PathBuf| {
            let path = CString::new(path.into_os_string().into_vec()).ok()?;
            let stamp = stamp(&path);
            Some((path, stamp))
        };
        files.into_iter().filter_map(stamped).collect()
    }

    pub(super) async fn capture(&self, shell: &Path) -> io::Result<Login> {
        let Found { mut env, exported } =
            login_shell::environment(shell, &self.base, &self.limits, &self.closing).await?;
        base_env::drop_shell_state(&mut env);
        base_env::drop_spare_locale(&mut env);
        // Each shell counts itself, and the one that captured must not be counted.
        let level = OsStr::new("SHLVL");
        env.remove(level);
        if let Some(value) = self.base.get(level) {
            env.insert(level.to_owned(), value.clone());
        }
        if let Some(given) = &self.given_path {
            keep_path(&mut env, given);
        }
        drop_large_functions(&mut env, self.limits.login_env_bytes);
        Ok(Login::new(&env, &exported))
    }
}

fn stamp(path: &CStr) -> Option<Stamp> {
    let asked = StatxFlags::INO | StatxFlags::SIZE | StatxFlags::CTIME;
    let now = statx(CWD, path, AtFlags::empty(), asked).ok()?;
    Some((
        (now.stx_dev_major, now.stx_dev_minor),
        now.stx_ino,
        now.stx_size,
        now.stx_ctime.tv_sec,
        now.stx_ctime.tv_nsec,
    ))
}

/// Adds directories of the daemon's own path that a start-up file has dropped: they were given on purpose.
fn keep_path(env: &mut Env, given: &OsStr) {
    let current = env.entry("PATH".into()).or_default();
    let mut parts: Vec<PathBuf> = std::env::split_paths(&*current).collect();
    for part in std::env::split_paths(given) {
        if !parts.contains(&part) && !part.as_os_str().is_empty() {
            parts.push(part);
        }
    }
    if let Ok(joined) = std::env::join_paths(parts) {
        *current = joined;
    }
}

/// Drops functions, the largest first, until programs can be started with what is left.
fn drop_large_functions(env: &mut Env, max: usize) {
    let size = |(name, value): (&OsString, &OsString)| name.len() + value.len() + 2;
    let mut total: usize = env.iter().map(size).sum();
    let mut functions: Vec<(usize, OsString)> = env
        .iter()
        .filter(|(name, _)| name.as_bytes().starts_with(b"BASH_FUNC_"))
        .map(|entry| (size(entry), entry.0.clone()))
        .collect();
    functions.sort_unstable();
    let mut dropped = 0_usize;
    while let Some((size, name)) = functions.pop() {
        if total <= max && size <= STRING_BYTES {
            break;
        }
        env.remove(&name);
        total -= size;
        dropped += 1;
    }
    if dropped > 0 {
        tracing::warn!(
            dropped,
            "functions of the login environment are too large to be passed on"
        );
    }
}
