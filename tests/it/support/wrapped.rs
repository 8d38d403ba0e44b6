//! The real binary started through other programs: as PID 1, as an ordinary user, from a terminal.
//!
//! Where this machine or this user cannot do it, a line says so and there is no server.

use std::ffi::OsStr;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use bma_executor::process::unmarked;
use tempfile::TempDir;

use super::binary::{Server, command, start_scratch, start_server_by};

/// The arguments of every server here.
const SERVE: [&str; 4] = ["serve", "--no-key", "--listen", "127.0.0.1:0"];

/// A user without any rights: nobody.
const NOBODY: u32 = 65_534;

/// A command that starts another program first, with the binary's variables and directory.
pub fn command_through(program: &str, arguments: &[&str], scratch: &Path) -> Command {
    let bare = command(scratch);
    let mut through = Command::new(program);
    through
        .args(arguments)
        .env_clear()
        .envs(
            bare.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(scratch.join("ws"))
        .stdin(Stdio::null());
    through
}

fn can(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg("true")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let can = unmarked(|| command.spawn()).is_ok_and(|mut child| child.wait().unwrap().success());
    if !can {
        println!(
            "not run: `{program} {}` cannot be done here",
            arguments.join(" ")
        );
    }
    can
}

/// Starts `serve` as PID 1 of a PID namespace.
pub fn start_first_server() -> Option<Server> {
    let arguments = if rustix::process::geteuid().is_root() {
        &["-pf", "--mount-proc"][..]
    } else {
        &["-rpf", "--mount-proc"]
    };
    let scratch = start_scratch();
    can("unshare", arguments).then(|| {
        let mut command = command_through("unshare", arguments, scratch.path());
        command.arg(env!("CARGO_BIN_EXE_bma-executor")).args(SERVE);
        start_server_by(scratch, command)
    })
}

/// Starts `serve` as an ordinary user, with further variables. An ordinary user who runs the tests is that user.
pub fn start_ordinary_server(variables: &[(&str, &OsStr)]) -> Option<Server> {
    let scratch = start_scratch();
    let mut command = ordinary_command(&scratch)?;
    command.args(SERVE).envs(variables.iter().copied());
    Some(start_server_by(scratch, command))
}

/// The binary as an ordinary user, who gets the scratch directory.
pub fn ordinary_command(scratch: &TempDir) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        return Some(command(scratch.path()));
    }
    let user = NOBODY.to_string();
    let arguments = ["--reuid", &user, "--regid", &user, "--clear-groups"];
    if !can("setpriv", &arguments) {
        return None;
    }
    // The build's own directory may be closed to others.
    let binary = scratch.path().join("bma-executor");
    std::fs::copy(env!("CARGO_BIN_EXE_bma-executor"), &binary).unwrap();
    std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
    for path in [
        scratch.path().to_owned(),
        scratch.path().join("ws"),
        scratch.path().join("home"),
    ] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mut command = command_through("setpriv", &arguments, scratch.path());
    command.arg(binary);
    Some(command)
}

/// Starts `serve` from a terminal; what appears there is in the file `terminal` of the scratch directory.
pub fn start_server_at_a_terminal() -> Option<Server> {
    if !can("script", &["-V"]) {
        return None;
    }
    let scratch = start_scratch();
    let line = format!(
        "exec {} {} --log-level error",
        env!("CARGO_BIN_EXE_bma-executor"),
        SERVE.join(" ")
    );
    let record = scratch.path().join("terminal");
    let mut command = command_through("script", &["-qefc", &line], scratch.path());
    command.arg(&record);
    Some(start_server_by(scratch, command))
}
