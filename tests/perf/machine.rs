//! What the figures were taken on and when, and how busy it was.

use std::process::Command;

use serde_json::{Value, json};

/// Returns the processor, its cores, memory, kernel, compiler and the time of day.
pub(crate) fn describe() -> Value {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    json!({
        "cpu": field("/proc/cpuinfo", "model name").or_else(|| field("/proc/cpuinfo", "CPU implementer")),
        "cores": cores,
        "kernel": format!("Linux {}", line("/proc/sys/kernel/osrelease")),
        "compiler": output("rustc", &["--version"]),
        "date": output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
    })
}

/// The load average of the last minute.
pub(crate) fn load() -> f64 {
    let line = line("/proc/loadavg");
    line.split(' ').next().unwrap().parse().unwrap()
}

fn line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

/// The value of a `name: value` line.
fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// What a program says, or nothing where it cannot be run.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// Whether a program is on the path.
pub(crate) fn find(program: &str) -> Option<std::path::PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}
