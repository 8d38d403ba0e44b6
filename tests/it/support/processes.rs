//! What runs on this machine, as far as a test may have started it.

use std::path::Path;
use std::time::{Duration, Instant};

/// The processes whose working directory is in a directory, or was before it was removed.
pub fn running_in(directory: &Path) -> Vec<String> {
    each_process(|pid| {
        let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        cwd.starts_with(directory)
            .then(|| format!("{pid}: {}", command_line(pid)))
    })
}

/// The processes whose command line holds a text.
pub fn running_with(marker: &str) -> Vec<String> {
    let own = std::process::id();
    each_process(|pid| {
        let line = command_line(pid);
        (pid != own && line.contains(marker)).then(|| format!("{pid}: {line}"))
    })
}

/// One process of this machine.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's.
    pub ppid: u32,
    /// Its command line.
    pub line: String,
}

/// Every process there is.
pub fn processes() -> Vec<Process> {
    each_process(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        Some(Process {
            pid,
            ppid: fields.nth(1)?.parse().ok()?,
            line: command_line(pid),
        })
    })
}

fn each_process<T>(mut look: impl FnMut(u32) -> Option<T>) -> Vec<T> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(&mut look)
        .collect()
}

fn command_line(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// Waits until a look finds nothing.
#[track_caller]
pub fn expect_none(what: &str, within: Duration, look: impl Fn() -> Vec<String>) {
    let until = Instant::now() + within;
    loop {
        let found = look();
        if found.is_empty() {
            return;
        }
        assert!(
            Instant::now() < until,
            "{what} still there after {within:?}: {found:#?}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
