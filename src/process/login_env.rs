//! The environment that a login shell would give, captured once and again when a start-up file changes.
//!
//! It must never let a start-up file hold up a command for longer than its bound, once, or mix into a command's output.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::base_env::{self, Env};
use super::children::{self, Tag};
use super::tree::Tree;
use crate::limits::Limits;

/// Tells the environment apart from whatever a start-up file prints. Options and traps that a start-up file may have
/// set are taken back first; where the functions make the environment too large for a program, it comes without them.
const SCRIPT: &str = r#"builtin set +eux -f
builtin trap - EXIT ERR DEBUG RETURN
IFS=$' \t\n'
builtin export -f -- $(builtin compgen -A function) >/dev/null
builtin printf '\0%s\0' "$1"
"$2" -0 2>/dev/null || { builtin export -nf -- $(builtin compgen -A function); "$2" -0; }
builtin printf '%s\0' "$1"
"#;

/// What one capture may print, start-up files' own words included.
const CAPTURE_BYTES: usize = 8 * 1024 * 1024;

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
}

#[derive(Debug)]
struct Cached {
    watched: Vec<(PathBuf, Option<Stamp>)>,
    env: Arc<Env>,
}

/// What changes when a file is changed: device, number, size, time of change in seconds and nanoseconds.
type Stamp = (u64, u64, u64, i64, i64);

impl LoginEnv {
    pub(super) fn new(base: Env, given_path: Option<OsString>, limits: Arc<Limits>) -> Self {
        Self {
            base,
            given_path,
            limits,
            cached: Mutex::default(),
            capturing: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the environment; captures it where there is none yet or a start-up file has changed.
    pub(super) async fn get(&self, shell: &Path) -> Arc<Env> {
        if let Some(env) = self.current() {
            return env;
        }
        let _turn = self.capturing.lock().await;
        if let Some(env) = self.current() {
            return env;
        }
        // The stamps come first: a change during the capture makes the next command capture again.
        let watched = self.startup_files();
        let env = match self.capture(shell).await {
            Ok(env) => env,
            Err(error) => {
                tracing::warn!(%error, "the login environment could not be captured; commands get the daemon's");
                self.base.clone()
            }
        };
        let env = Arc::new(env);
        let cached = Arc::new(Cached {
            watched,
            env: Arc::clone(&env),
        });
        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = Some(cached);
        env
    }

    fn current(&self) -> Option<Arc<Env>> {
        let cached = self
            .cached
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()?;
        let same = cached
            .watched
            .iter()
            .all(|(path, then)| stamp(path) == *then);
        same.then(|| Arc::clone(&cached.env))
    }

    fn startup_files(&self) -> Vec<(PathBuf, Option<Stamp>)> {
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
            let stamp = stamp(&path);
            (path, stamp)
        };
        files.into_iter().map(stamped).collect()
    }

    async fn capture(&self, shell: &Path) -> io::Result<Env> {
        let mark = format!("{:016x}", getrandom::u64().map_err(io::Error::other)?);
        let text = self.run(shell, &mark).await?;
        let mut env = parse(&text, mark.as_bytes())
            .ok_or_else(|| io::Error::other("a start-up file ended or replaced the shell"))?;
        base_env::drop_shell_state(&mut env);
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
        Ok(env)
    }

    /// Runs the login shell and returns what it printed, up to the second mark.
    async fn run(&self, shell: &Path, mark: &str) -> io::Result<Vec<u8>> {
        let directories = self.base.get(OsStr::new("PATH")).map(std::env::split_paths);
        let usual = ["/usr/bin", "/bin"].map(PathBuf::from);
        let env = base_env::find(
            usual.into_iter().chain(directories.into_iter().flatten()),
            "env",
        )
        .ok_or_else(|| io::Error::other("there is no program `env`"))?;
        #[expect(clippy::disallowed_methods, reason = "this is the door to programs")]
        let mut command = Command::new(shell);
        command
            .arg0("bash")
            .args(["-l", "-c", SCRIPT, "bash", mark])
            .arg(env)
            .env_clear()
            .envs(&self.base)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let tag = Tag::new();
        let mut spawned = children::spawn(&mut command, tag)?;
        let mut tree = Tree::new(tag, spawned.pid);
        let mut text = Vec::new();
        let read = async {
            let stdout = spawned
                .child
                .stdout
                .take()
                .ok_or(io::ErrorKind::BrokenPipe)?;
            let mut stdout = pipe::Receiver::from_owned_fd(stdout.into())?;
            let end = format!("\0{mark}\0");
            while text.len() < CAPTURE_BYTES {
                if stdout.read_buf(&mut text).await? == 0 {
                    break;
                }
                // A background process of a start-up file may hold the pipe, so its end is not waited for.
                let marks = memchr::memmem::find_iter(&text, end.as_bytes());
                if marks.count() >= 2 {
                    break;
                }
            }
            io::Result::Ok(())
        };
        let read = tokio::time::timeout(self.limits.login_env_timeout, read)
            .await
            .unwrap_or_else(|_elapsed| Err(io::Error::other("a start-up file took too long")));
        let pid = spawned.pid;
        let ended = tokio::task::spawn_blocking(move || {
            // What a start-up file started on purpose, an agent for instance, may stay; a shell that hangs may not.
            if read.is_err() {
                tree.kill_round();
            }
            (read, tree)
        });
        let (read, _tree) = ended.await.map_err(io::Error::other)?;
        wait_for(&spawned.pidfd, self.limits.kill_grace).await;
        if matches!(children::reap(pid), Ok(None)) {
            tracing::warn!(pid, "the login shell did not end");
        }
        read.map(|()| text)
    }
}

/// Waits until a process has exited, with a bound.
async fn wait_for(pidfd: &std::os::fd::OwnedFd, bound: std::time::Duration) {
    let exited = async {
        let handle = pipe::Receiver::from_owned_fd_unchecked(pidfd.try_clone()?)?;
        handle.readable().await
    };
    if let Ok(Err(error)) = tokio::time::timeout(bound, exited).await {
        tracing::debug!(%error, "a process could not be watched");
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let meta = std::fs::metadata(path).ok()?;
    Some((
        meta.dev(),
        meta.ino(),
        meta.size(),
        meta.ctime(),
        meta.ctime_nsec(),
    ))
}

/// Takes the variables from between the two marks; `None` where either is missing.
fn parse(text: &[u8], mark: &[u8]) -> Option<Env> {
    let begin = [b"\0", mark, b"\0"].concat();
    let start = memchr::memmem::find(text, &begin)? + begin.len();
    let mut env = Env::new();
    for record in text.get(start..)?.split(|byte| *byte == 0) {
        if record == mark {
            return Some(env);
        }
        // A name may not begin with the sign, but a value may hold any.
        if let Some(sign) = memchr::memchr(b'=', record).filter(|sign| *sign > 0) {
            let (name, value) = record.split_at(sign);
            let value = value.get(1..).unwrap_or_default();
            env.insert(
                OsString::from_vec(name.to_vec()),
                OsString::from_vec(value.to_vec()),
            );
        }
    }
    None
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
