//! What the host gives every process: `/proc`, limits, memory, clock, time zone.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};

use super::Finding;
use crate::cli::host;
use crate::config::Config;
use crate::process::{MOST_HELD, own_usage};

/// Memory that the daemon may take where harnesses do not read (README, "Speed and size").
const MEMORY: u64 = 96 * 1024 * 1024;

/// Processes of one user below which a build of a few jobs fails.
const PROCESSES: u64 = 256;

/// The beginning of 2024: no clock that goes right shows an earlier time.
const PAST: Duration = Duration::from_hours(473_352);

/// Looks at each.
pub(super) fn look(config: &Config) -> Vec<Finding> {
    vec![
        proc(),
        descriptors(config),
        processes(),
        memory(),
        clock(),
        time_zone(),
    ]
}

fn proc() -> Finding {
    let usage = own_usage();
    if usage.resident_bytes.is_some() && usage.descriptors.is_some() {
        return Finding::ok("proc", "/proc can be read");
    }
    Finding::missing(
        "proc",
        "/proc cannot be read, so that the processes of a command cannot be found and ended",
        "mount it: `mount -t proc proc /proc`",
    )
}

fn descriptors(config: &Config) -> Finding {
    let limits = &config.limits;
    // A call holds two pipes and a few handles, some of them both ends of the pipes; a connection its socket.
    let calls = 4 * limits.max_concurrent_calls + 2 * MOST_HELD;
    let wanted = (limits.max_connections + calls) as u64;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < wanted => Finding::warning(
            "descriptors",
            format!(
                "{limit}; {} calls and {} connections may need {wanted}",
                limits.max_concurrent_calls, limits.max_connections
            ),
            "raise it (`ulimit -n`, `LimitNOFILE=` in a unit), or lower --max-concurrent-calls",
        ),
        Some(limit) => Finding::ok("descriptors", format!("up to {limit}")),
        None => Finding::ok("descriptors", "unlimited"),
    }
}

fn processes() -> Finding {
    let own = getrlimit(Resource::Nproc).current;
    let group = host::limit_of_group("pids.max");
    match own.into_iter().chain(group).min() {
        Some(limit) if limit < PROCESSES => Finding::warning(
            "processes",
            format!("up to {limit}"),
            "raise it (`ulimit -u`, `TasksMax=` in a unit, `--pids-limit` of a container)",
        ),
        Some(limit) => Finding::ok("processes", format!("up to {limit}")),
        None => Finding::ok("processes", "unlimited"),
    }
}

fn memory() -> Finding {
    let own = getrlimit(Resource::As).current;
    let group = host::limit_of_group("memory.max");
    let free = host::available_memory();
    let Some(least) = own.into_iter().chain(group).chain(free).min() else {
        return Finding::ok("memory", "unlimited");
    };
    let shown = format!("{} MiB", least >> 20);
    if least < MEMORY {
        let advice = "give the executor 96 MiB besides what its commands take";
        return Finding::warning("memory", shown, advice);
    }
    Finding::ok("memory", shown)
}

fn clock() -> Finding {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    if since < PAST {
        return Finding::warning(
            "clock",
            format!("{} s since 1970, which is long ago", since.as_secs()),
            "set the clock: certificates and deadlines given as a time depend on it",
        );
    }
    Finding::ok(
        "clock",
        humantime::format_rfc3339_seconds(UNIX_EPOCH + since).to_string(),
    )
}

fn time_zone() -> Finding {
    const CHECK: &str = "time_zone";
    let zones = Path::new("/usr/share/zoneinfo");
    match host::time_zone() {
        Some(name) if matches!(name.as_str(), "UTC" | "UTC0" | "GMT") => Finding::ok(CHECK, name),
        Some(name) if zones.join(name.trim_start_matches(':')).exists() => Finding::ok(CHECK, name),
        // The rule itself may be given in place of a name, as in `CET-1CEST,M3.5.0,M10.5.0/3`.
        Some(name) if name.contains(|char: char| char.is_ascii_digit()) => Finding::ok(CHECK, name),
        Some(name) => Finding::warning(
            CHECK,
            format!("TZ is {name}, which this machine does not know, so that commands see UTC"),
            "install the zones (`apt-get install tzdata`), or set TZ to another",
        ),
        None if Path::new("/etc/localtime").exists() => Finding::ok(CHECK, "/etc/localtime"),
        None => Finding::ok(CHECK, "UTC, since nothing else is set"),
    }
}
