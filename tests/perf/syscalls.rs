//! The system calls of one tool call, by name, as `strace` sees them at the daemon.
//!
//! What a command does after its `execve` is the command's own and is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Client;
use crate::machine::find;
use crate::plan::Plan;
use crate::server::Server;
use crate::table::{Table, Tally};

pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    if find("strace").is_none() {
        eprintln!("no system calls counted: strace is not installed");
        return;
    }
    let calls = plan.pick(2, 50, 200);
    for (what, input) in [
        ("read", json!({"path": "file"})),
        ("bash", json!({"command": "true"})),
    ] {
        match count(plan, what, &input, calls) {
            Some(each) => table.area().tallies.push(Tally {
                what: what.to_owned(),
                calls,
                each,
            }),
            None => eprintln!(
                "no system calls of {what} counted: strace may not look at the daemon (try as root)"
            ),
        }
    }
}

fn count(plan: &Plan, tool: &str, input: &Value, calls: usize) -> Option<BTreeMap<String, f64>> {
    let server = Server::start(plan);
    std::fs::write(server.workspace().join("file"), "a line\n".repeat(585)).unwrap();
    let mut client = Client::connect(&server);
    // Threads are started and the login environment is taken by now.
    (0..10).for_each(|_| drop(client.call(tool, input)));
    let trace = server.workspace().with_file_name("trace");
    let daemon = server.daemon_pid();
    let mut strace = attach(daemon, &trace)?;
    let before = threads(daemon);
    (0..calls).for_each(|_| drop(client.call(tool, input)));
    let own: BTreeSet<u32> = before.union(&threads(daemon)).copied().collect();
    let pid = rustix::process::Pid::from_child(&strace);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    strace.wait().unwrap();
    let trace = std::fs::read_to_string(trace).unwrap();
    Some(by_name(&trace, &own, calls))
}

/// Starts `strace` and waits until it holds every thread; `None` where it may not.
fn attach(daemon: u32, trace: &Path) -> Option<Child> {
    let mut strace = Command::new("strace")
        .args(["-f", "-qq", "-p", &daemon.to_string(), "-o"])
        .arg(trace)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let until = Instant::now() + Duration::from_secs(5);
    let is_held = |thread: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{daemon}/task/{thread}/status"));
        status.is_ok_and(|status| !status.contains("TracerPid:\t0\n"))
    };
    while Instant::now() < until && strace.try_wait().unwrap().is_none() {
        if threads(daemon).iter().all(is_held) {
            return Some(strace);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _gone = strace.kill();
    strace.wait().unwrap();
    None
}

fn threads(pid: u32) -> BTreeSet<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let id = |name: std::ffi::OsString| name.to_str()?.parse().ok();
    tasks
        .flatten()
        .filter_map(|task| id(task.file_name()))
        .collect()
}

/// Counts the lines `PID name(…` of the daemon's own threads, and of its children up to their `execve`.
fn by_name(trace: &str, own: &BTreeSet<u32>, calls: usize) -> BTreeMap<String, f64> {
    let mut each = BTreeMap::new();
    let mut commands = BTreeSet::new();
    for line in trace.lines() {
        let Some((pid, rest)) = line.split_once(' ') else {
            continue;
        };
        let pid: u32 = pid.parse().unwrap();
        let Some((name, _)) = rest.trim_start().split_once('(') else {
            continue;
        };
        // What was interrupted goes on in a line of its own, and signals have none.
        if name.contains(['<', ' ', '-', '+']) || commands.contains(&pid) {
            continue;
        }
        let is_child = !own.contains(&pid);
        let name = if is_child {
            format!("{name} (child)")
        } else {
            name.to_owned()
        };
        *each.entry(name).or_insert(0.0) += 1.0 / calls as f64;
        if is_child && rest.trim_start().starts_with("execve(") {
            commands.insert(pid);
        }
    }
    each
}
