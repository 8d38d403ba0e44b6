//! One run of the login shell, for its environment.
//!
//! It must never go on without a bound, end a start-up file impolitely, or take a start-up file's words for variables.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

use super::base_env::{self, Env};
use super::children::{self, Spawned, Tag};
use super::launch::{self, Launch};
use super::pipes::one_pipe;
use super::supervise::end;
use super::tree::Tree;
use super::variables::Variables;
use crate::limits::Limits;

/// Tells the environment apart from whatever a start-up file prints; before it, which functions programs get too. Options and traps that a start-up file may have
/// set are taken back first; where the functions make the environment too large for a program, it comes without them.
const SCRIPT: &CStr = cr#"builtin set +aeux -f
builtin trap - EXIT ERR DEBUG RETURN
IFS=$' \t\n'
builtin printf '\0%s\0' "$1"
builtin declare -Fx
builtin export -f -- $(builtin compgen -A function) >/dev/null
builtin printf '\0%s\0' "$1"
"$2" -0 2>/dev/null || { builtin export -nf -- $(builtin compgen -A function); "$2" -0; }
builtin printf '%s\0' "$1"
"#;

/// What a login shell comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Its variables; every function is one of them.
    pub(super) env: Env,
    /// The functions that it exports itself.
    pub(super) exported: HashSet<Vec<u8>>,
}

/// What one run may print, start-up files' own words included: twice what an environment can be.
const CAPTURE_BYTES: usize = 4 * 1024 * 1024;

/// Runs the login shell in `base` and returns the environment that it comes to; `closing` ends it early.
pub(super) async fn environment(
    shell: &Path,
    base: &Env,
    limits: &Limits,
    closing: &CancellationToken,
) -> io::Result<Found> {
    let mark = format!("{:016x}", getrandom::u64().map_err(io::Error::other)?);
    let tag = Tag::new();
    let (stdout, writing) = one_pipe()?;
    let spawned = start(shell, base, &mark, writing.as_fd(), tag)?;
    drop(writing);
    let pid = spawned.pid;
    let read = read(stdout, &mark);
    let patience = tokio::time::timeout(limits.login_env_patience, read);
    let read = match closing.run_until_cancelled(patience).await {
        Some(Ok(read)) => read,
        Some(Err(_)) => Err(io::Error::other("a start-up file does not end")),
        None => Err(io::Error::other("the executor stops")),
    };
    if read.is_ok() {
        exited(&spawned.pidfd, limits.drain_grace).await;
    }
    // What start-up files start on purpose, an agent for instance, may stay; a shell that does not end may not, nor
    // what it waits for.
    if read.is_err() || matches!(children::reap(pid), Ok(None)) {
        let (_, killed, survived) = end(Tree::new(tag, pid).with_shell(), None, limits).await?;
        if matches!(children::reap(pid), Ok(None)) {
            tracing::warn!(pid, killed, ?survived, "the login shell cannot be ended");
            children::abandon(pid);
        }
    }
    read
}

fn start(
    shell: &Path,
    base: &Env,
    mark: &str,
    stdout: BorrowedFd<'_>,
    tag: Tag,
) -> io::Result<Spawned> {
    let directories = base.get(OsStr::new("PATH")).map(std::env::split_paths);
    let usual = ["/usr/bin", "/bin"].map(PathBuf::from);
    let printer = base_env::find(
        usual.into_iter().chain(directories.into_iter().flatten()),
        "env",
    )
    .ok_or_else(|| io::Error::other("there is no program `env`"))?;
    let (mark, printer) = (
        CString::new(mark)?,
        CString::new(printer.into_os_string().into_vec())?,
    );
    let directory = launch::directory("/")?;
    let (stdin, stderr) = (launch::null(OFlags::RDONLY)?, launch::null(OFlags::WRONLY)?);
    let (env, none) = (Variables::of(base), BTreeMap::new());
    let launch = Launch {
        program: shell,
        args: &[c"bash", c"-l", c"-c", SCRIPT, c"bash", &mark, &printer],
        env: &env.under(&none)?,
        directory: directory.as_fd(),
        stdin,
        outputs: [stdout, stderr.as_fd()],
    };
    children::spawn(launch, tag).map_err(io::Error::other)
}

/// Reads until the environment has come whole; a background process of a start-up file may hold the pipe longer.
async fn read(mut stdout: pipe::Receiver, mark: &str) -> io::Result<Found> {
    let mut text = Vec::new();
    while stdout.read_buf(&mut text).await? > 0 {
        if let Some(found) = parse(&text, mark.as_bytes()) {
            return Ok(found);
        }
        if text.len() > CAPTURE_BYTES {
            return Err(io::Error::other("a start-up file prints too much"));
        }
    }
    Err(io::Error::other(
        "a start-up file ended or replaced the shell",
    ))
}

/// Waits until a process has exited, with a bound.
async fn exited(pidfd: &OwnedFd, bound: Duration) {
    let exited = async {
        let handle = pipe::Receiver::from_owned_fd_unchecked(pidfd.try_clone()?)?;
        handle.readable().await
    };
    if let Ok(Err(error)) = tokio::time::timeout(bound, exited).await {
        tracing::debug!(%error, "a process could not be watched");
    }
}

/// Takes what stands between the three marks; `None` where one is missing.
fn parse(text: &[u8], mark: &[u8]) -> Option<Found> {
    let begin = [b"\0", mark, b"\0"].concat();
    let start = memchr::memmem::find(text, &begin)? + begin.len();
    let text = text.get(start..)?;
    let middle = memchr::memmem::find(text, &begin)?;
    let (listed, text) = text.split_at_checked(middle)?;
    let exported = listed
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.rsplit(|byte| *byte == b' ').next())
        .map(<[u8]>::to_vec)
        .collect();
    let mut env = Env::new();
    for record in text.get(begin.len()..)?.split(|byte| *byte == 0) {
        if record == mark {
            return Some(Found { env, exported });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_taken() {
        let text = b"noise A=1\0\0mark\0declare -fx f\ndeclare -fx g-h\n\0mark\0B=2\0C=a=b\nc\0=odd\0nothing\0mark\0D=4";
        let Found { env, exported } = parse(text, b"mark").unwrap();
        let expected =
            [("B", "2"), ("C", "a=b\nc")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(env, Env::from(expected));
        assert!(
            [&b"f"[..], b"g-h"]
                .iter()
                .all(|name| exported.contains(*name))
        );
        assert_eq!(parse(b"\0mark\0\0mark\0B=2\0", b"mark"), None);
        assert_eq!(parse(b"\0mark\0B=2\0mark", b"mark"), None);
    }
}
