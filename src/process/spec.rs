//! One command as the shell gets it.
//!
//! It must never add text to a command, on whose lines it could be swallowed, nor look up a directory twice.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::base_env;
use super::functions::Login;

/// What to run, and how.
#[derive(Debug)]
pub(crate) struct Spec {
    /// What bash runs.
    pub(crate) command: String,
    /// Where.
    pub(crate) cwd: OwnedFd,
    /// What that is called, where it is known; bash looks itself whether it is true.
    pub(crate) cwd_path: Option<OsString>,
    /// Variables above all others.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// When to end it.
    pub(crate) timeout: Duration,
}

/// Longest argument that the kernel takes, its end included (`MAX_ARG_STRLEN`).
const ARGUMENT_BYTES: usize = 128 * 1024;

/// Runs a command that is too long for an argument. It arrives as a file on standard input, which is empty again
/// before the first line runs; everything stands on line 1, so that the command's lines keep their numbers.
const FROM_STDIN: &str = r#"IFS= read -r -d "" REPLY; exec </dev/null; eval "$REPLY""#;

/// Comes before a long command and hides how it came.
const HIDE: &[u8] = b"unset -v REPLY;";

/// Builds the command. `cwd_path` is what the directory is called; the descriptor decides where it is.
pub(super) fn command(
    shell: &Path,
    spec: &Spec,
    cwd_path: OsString,
    login: &Login,
    session: &[(OsString, OsString)],
) -> io::Result<Command> {
    #[expect(clippy::disallowed_methods, reason = "this is the door to programs")]
    let mut command = Command::new(shell);
    command.arg0("bash").args(["-c", "--"]);
    if spec.command.len() < ARGUMENT_BYTES {
        command.arg(&spec.command).stdin(Stdio::null());
    } else {
        command.arg(FROM_STDIN).stdin(as_file(&spec.command)?);
    }
    let above = || session.iter().chain(&spec.env);
    let env = login.for_command(&spec.command, above().map(|(name, _)| name));
    let get = |wanted: &str| {
        let mut given = above().filter(|(name, _)| name == wanted);
        given
            .next_back()
            .map(|(_, value)| value)
            .or_else(|| env.get(OsStr::new(wanted)))
    };
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env_clear()
        .envs(env)
        .env("PWD", cwd_path)
        .envs(above().map(|(name, value)| (name, value)))
        // Resolved by the child before it executes anything, so the directory is the one that was opened.
        .current_dir(own_descriptor(&spec.cwd))
        .process_group(0);
    if base_env::is_spare_locale(get) {
        command.env_remove(base_env::LOCALE.0);
    }
    Ok(command)
}

/// Returns the path under which this process and a child that has not yet executed find a descriptor.
pub(super) fn own_descriptor(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

fn as_file(command: &str) -> io::Result<File> {
    use std::io::Seek as _;
    let mut file = File::from(rustix::fs::memfd_create(
        "command",
        rustix::fs::MemfdFlags::CLOEXEC,
    )?);
    file.write_all(HIDE)?;
    file.write_all(command.as_bytes())?;
    file.rewind()?;
    Ok(file)
}
