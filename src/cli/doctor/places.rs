//! What the daemon keeps and where it listens: state directory, key, disks, ports, certificate authorities.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfs, StatVfsMountFlags, statvfs};

use super::Finding;
use crate::cli::{healthcheck, host};
use crate::config::{Config, KeySource};
use crate::state::{self, StateDir, StateError};
use crate::telemetry::chain;

/// Less than this is soon used up by outputs, of which one call may keep 64 MiB.
const LITTLE_SPACE: u64 = 256 * 1024 * 1024;

/// Looks at each.
pub(super) fn look(config: &Config) -> Vec<Finding> {
    let workspace = config.workspace.canonicalize();
    let workspace = workspace.unwrap_or_else(|_| config.workspace.clone());
    let state = host::state_dir(config.state_dir.as_ref(), &workspace);
    let mut found = Vec::new();
    match &state {
        Ok(directory) => {
            let state = state_dir(directory, config);
            let journal = journal(&state);
            found.extend([state, journal]);
            found.extend(inside(directory, &workspace));
            found.push(key(config, directory));
            found.push(space("disk_workspace", &workspace));
            found.push(space("disk_state", &nearest(directory)));
        }
        Err(failure) => {
            let advice = "name one with --state-dir, or set HOME";
            found.push(Finding::missing("state_dir", &failure.sentence, advice));
        }
    }
    if config.harness_url.is_none() {
        found.push(port("listen", config.listen, config));
    }
    if let Some(admin) = config.admin {
        found.push(port("admin_listen", admin, config));
    }
    found.push(roots(config));
    found
}

/// Whether the daemon cannot start without the state directory: its key would be made there.
fn needs_state(config: &Config) -> bool {
    config.harness_url.is_none()
        && config.key == KeySource::Default
        && !host::key_of_environment().is_ok_and(|key| key.is_some())
}

fn state_dir(directory: &Path, config: &Config) -> Finding {
    const CHECK: &str = "state_dir";
    let wrong = |what: String| {
        if needs_state(config) {
            let advice = "name one that can be written with --state-dir, or give the key by BMA_ENVIRONMENT_KEY or --key-file";
            Finding::missing(CHECK, what, advice)
        } else {
            let advice = "name one that can be written with --state-dir";
            Finding::warning(CHECK, what, advice)
        }
    };
    let shown = directory.display();
    if !directory.exists() {
        let parent = nearest(directory);
        // Only making one tells: rights say nothing of a file system that takes no directories.
        return match tempfile::Builder::new()
            .prefix(".bma-executor-doctor-")
            .tempdir_in(&parent)
        {
            Ok(_gone_at_once) => Finding::ok(CHECK, format!("{shown} will be made")),
            Err(error) => wrong(format!(
                "{shown} cannot be made: {}: {error}",
                parent.display()
            )),
        };
    }
    let was_there = directory.join("lock").exists();
    let opened = StateDir::open(directory);
    if !was_there && opened.is_ok() {
        drop(std::fs::remove_file(directory.join("lock")));
    }
    match opened {
        Ok(_held) => Finding::ok(CHECK, format!("{shown}, not locked")),
        Err(StateError::Locked(_)) => {
            Finding::ok(CHECK, format!("{shown}, held by an executor that runs"))
        }
        Err(error) => wrong(chain(&error)),
    }
}

/// The journal is in the state directory, or nowhere.
fn journal(state: &Finding) -> Finding {
    if state.is_ok() {
        return Finding::ok("journal", "disk");
    }
    let advice = "see state_dir: a restart of the executor forgets its calls";
    Finding::warning("journal", "memory", advice)
}

/// Says where the tools can reach what the executor keeps.
fn inside(state: &Path, workspace: &Path) -> Option<Finding> {
    let found = format!("{} is in the workspace", state.display());
    host::is_inside(state, workspace).then(|| {
        let advice = "the tools can read the key and change the journal: name a directory outside of it with --state-dir";
        Finding::warning("state_dir_place", found, advice)
    })
}

fn nearest(path: &Path) -> PathBuf {
    let there = path.ancestors().find(|path| path.exists());
    there.unwrap_or(path).to_owned()
}

fn key(config: &Config, state: &Path) -> Finding {
    const CHECK: &str = "key";
    let file = match &config.key {
        KeySource::None => return Finding::ok(CHECK, "none is asked for"),
        KeySource::File(file) => file.clone(),
        KeySource::Default => match host::key_of_environment() {
            Ok(Some(_)) => return Finding::ok(CHECK, "in BMA_ENVIRONMENT_KEY"),
            Err(failure) => {
                let advice = "set another: 16 to 4096 visible ASCII characters";
                return Finding::missing(CHECK, failure.sentence, advice);
            }
            Ok(None) if config.harness_url.is_some() => {
                let advice = "set BMA_ENVIRONMENT_KEY, or give --key-file";
                return Finding::missing(CHECK, "none is known for the harness", advice);
            }
            Ok(None) => state::key_path(state),
        },
    };
    if config.key == KeySource::Default && !file.exists() {
        return Finding::ok(CHECK, "will be made in the state directory");
    }
    if let Err(error) = state::read_key(&file) {
        let advice = "put a key there, 16 to 4096 visible ASCII characters that the executor's user may read";
        return Finding::missing(CHECK, chain(&error), advice);
    }
    match state::wide_mode(&file) {
        Some(mode) => Finding::warning(
            CHECK,
            format!("{} may be read by others: mode {mode:04o}", file.display()),
            format!("chmod 600 {}", file.display()),
        ),
        None => Finding::ok(CHECK, file.display().to_string()),
    }
}

fn space(check: &'static str, place: &Path) -> Finding {
    let StatVfs {
        f_bavail,
        f_frsize,
        f_favail,
        f_files,
        f_flag,
        ..
    } = match statvfs(place) {
        Ok(stat) => stat,
        Err(error) => {
            let advice = "make the directory, or name another";
            return Finding::warning(check, format!("{}: {error}", place.display()), advice);
        }
    };
    let free = f_bavail.saturating_mul(f_frsize);
    let shown = format!("{} MiB free on the disk of {}", free >> 20, place.display());
    if f_flag.contains(StatVfsMountFlags::RDONLY) {
        let advice = "mount it writable where it is to be written";
        return Finding::warning(check, format!("{shown}, mounted read-only"), advice);
    }
    if free < LITTLE_SPACE {
        return Finding::warning(check, shown, "make room, or mount a larger disk");
    }
    // Some file systems count no files.
    if f_files > 0 && f_favail == 0 {
        let what = format!("{shown}, but no further file can be made");
        return Finding::warning(
            check,
            what,
            "remove files, or mount a disk with more inodes",
        );
    }
    Finding::ok(check, shown)
}

fn port(check: &'static str, address: SocketAddr, config: &Config) -> Finding {
    let error = match TcpListener::bind(address) {
        Ok(_listener) => return Finding::ok(check, format!("{address} is free")),
        Err(error) => error,
    };
    if healthcheck::answers(address, config) {
        return Finding::ok(check, format!("{address}: an executor answers there"));
    }
    let flag = check.replace('_', "-");
    Finding::missing(
        check,
        format!("{address} cannot be listened on: {error}"),
        format!("end what listens there, or choose another with --{flag}"),
    )
}

fn roots(config: &Config) -> Finding {
    const CHECK: &str = "tls_roots";
    let known = rustls_native_certs::load_native_certs().certs.len();
    if known > 0 {
        return Finding::ok(CHECK, format!("{known} certificate authorities"));
    }
    let what = "no certificate authority is known to this machine";
    let advice = "install them (`apt-get install ca-certificates`), or name a file with --ca-file";
    let dials_tls = config
        .harness_url
        .as_deref()
        .is_some_and(|url| url.starts_with("wss:"));
    if dials_tls && config.ca_file.is_none() {
        Finding::missing(CHECK, what, advice)
    } else {
        Finding::warning(CHECK, format!("{what}; only wss:// needs them"), advice)
    }
}
