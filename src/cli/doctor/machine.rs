//! What `environment` reports: workspace, confinement, shell, process control, journal, sandbox.

use std::time::Duration;

use super::Finding;
use crate::cli::{Failure, host, runtime};
use crate::config::Config;
use crate::daemon::{Machine, StartError};
use crate::dispatch::Tool;
use crate::process::{Control, probe_control};
use crate::telemetry::chain;
use crate::wire::Environment;

/// Looks at the machine as a start of the daemon would.
pub(super) fn look(config: &Config) -> Result<Vec<Finding>, Failure> {
    let machine = match Machine::probe(config, host::environment(), host::user()) {
        Ok(machine) => machine,
        Err(StartError::Workspace(error)) => {
            let advice = "name a directory that is there with --workspace, or make it";
            return Ok(vec![Finding::missing("workspace", chain(&error), advice)]);
        }
        Err(error) => return Err(error.into()),
    };
    let environment = machine.offer(&config.tools).environment;
    let mut found = vec![workspace(&machine, config), confinement(&environment)];
    found.extend(process_control());
    found.push(shell(&machine, config));
    if machine.shell().is_some() {
        found.push(login(&machine, config.limits.login_env_timeout)?);
    }
    found.push(user(&environment));
    found.push(sandbox(&environment));
    Ok(found)
}

fn workspace(machine: &Machine, config: &Config) -> Finding {
    use rustix::fs::{Access, access};

    let root = machine.workspace().root();
    let shown = machine.workspace().shown_root();
    let may = |rights| access(root, rights);
    if let Err(error) = may(Access::READ_OK | Access::EXEC_OK) {
        let advice = "give the executor's user the right to read and enter it";
        return Finding::missing("workspace", format!("{shown}: {error}"), advice);
    }
    match may(Access::WRITE_OK) {
        Err(error) if !config.tools.read_only => Finding::warning(
            "workspace",
            format!("{shown} cannot be written: {error}"),
            "`write` and `edit` will fail: mount it writable, or offer less with --read-only",
        ),
        Ok(()) | Err(_) => Finding::ok("workspace", shown),
    }
}

fn confinement(environment: &Environment) -> Finding {
    if environment.confinement == "openat2" {
        return Finding::ok("confinement", "openat2");
    }
    Finding::warning(
        "confinement",
        "the kernel offers no openat2; paths are walked part by part with the same guarantees, but slower",
        "use Linux 5.6 or newer, and a container profile that allows openat2",
    )
}

fn process_control() -> Vec<Finding> {
    let Control { subreaper, pidfd } = probe_control();
    let advice = "use Linux 5.4 or newer, and a container profile that allows prctl and pidfd_open";
    vec![
        match subreaper {
            Ok(()) => Finding::ok("process_control", "subreaper"),
            Err(error) => Finding::missing(
                "process_control",
                format!("processes that leave their command cannot be found: {error}"),
                advice,
            ),
        },
        match pidfd {
            Ok(()) => Finding::ok("pidfd", "processes can be watched"),
            Err(error) => Finding::missing(
                "pidfd",
                format!("processes cannot be watched: {error}"),
                advice,
            ),
        },
    ]
}

fn shell(machine: &Machine, config: &Config) -> Finding {
    let disabled = config.tools.disabled.contains(&Tool::Bash);
    match machine.shell() {
        Some(path) => Finding::ok("shell", path.display().to_string()),
        None if disabled => Finding::ok("shell", "no bash, and `bash` is switched off"),
        None => Finding::missing(
            "shell",
            "no bash in /bin, /usr/bin, /usr/local/bin or along PATH, so that `bash` is not offered",
            "install bash (`apt-get install bash`), or give up the tool with --disable bash",
        ),
    }
}

fn login(machine: &Machine, bound: Duration) -> Result<Finding, Failure> {
    let runtime = runtime()?;
    let took = runtime.block_on(machine.login_time());
    runtime.shutdown_timeout(bound);
    let shown = |took: Duration| format!("{} ms", took.as_millis());
    Ok(match took {
        Ok(took) if took <= bound => Finding::ok("login_environment", shown(took)),
        Ok(took) => Finding::warning(
            "login_environment",
            format!(
                "a login shell takes {}; the first commands do without its environment",
                shown(took)
            ),
            "look for what is slow in /etc/profile, /etc/profile.d and the user's .profile, .bash_profile and .bashrc",
        ),
        Err(error) => Finding::warning(
            "login_environment",
            format!("it cannot be captured, so that commands get the daemon's: {error}"),
            "run `bash -lc true` as the executor's user, and repair the start-up file that fails or hangs",
        ),
    })
}

fn user(environment: &Environment) -> Finding {
    if !rustix::process::geteuid().is_root() {
        return Finding::ok("user", environment.user.clone());
    }
    Finding::warning(
        "user",
        format!(
            "{}: a command of root can look into the daemon",
            environment.user
        ),
        "run the executor as an ordinary user",
    )
}

fn sandbox(environment: &Environment) -> Finding {
    let sandbox = &environment.sandbox;
    if sandbox.mode != "none" {
        return Finding::ok("sandbox", sandbox.mode.clone());
    }
    Finding::warning(
        "sandbox",
        format!(
            "none: {}",
            sandbox.reason.as_deref().unwrap_or("there is none")
        ),
        "give the executor a container or a user of its own, with nothing in reach that its agent must not have",
    )
}
