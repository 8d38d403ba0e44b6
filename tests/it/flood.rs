//! Output without end: bounded memory, and nobody waits (case OUT-03).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::binary::{Server, start_server};
use crate::support::{SOON, slow_tests_run};

/// What the daemon may take at its peak, in KiB: its own size and two floods.
const CEILING_KIB: u64 = 48 * 1024;

fn peak_kib(server: &Server) -> u64 {
    let path = format!("/proc/{}/status", server.daemon().as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn output_without_end_takes_bounded_memory_and_holds_up_nobody() {
    if !slow_tests_run() {
        return;
    }
    let server = start_server(&["--no-key"]);
    let mut client = server.connect().await;
    client.check_alive().await;
    let mut floods = Vec::new();
    for command in [
        "yes",
        "yes >&2",
        "head -c 1000000000 /dev/zero | tr '\\0' a",
    ] {
        let input = json!({"command": command, "timeout_ms": if command.starts_with("head") { 100_000 } else { 3_000 }});
        floods.push(client.send_call("bash", input).await);
    }
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let begun = Instant::now();
        client.check_alive().await;
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "{:?}",
            begun.elapsed()
        );
    }
    for id in &floods[..2] {
        let reply = client.expect_result(id).await;
        assert_eq!(reply.details()["cause"], "timeout");
        assert!(reply.details()["omitted_bytes"].as_u64().unwrap() > 0);
        assert!(reply.data().len() < 49 * 1024);
        assert!(reply.data().contains(" left out here ...]"));
    }
    let reply = client.expect_result_within(&floods[2], SOON * 6).await;
    reply.check_done();
    assert_eq!(reply.details()["exit_code"], 0);
    assert_eq!(reply.details()["stdout_bytes"], 1_000_000_000);
    assert!(reply.data().len() < 49 * 1024);
    assert!(reply.notes().contains("are not shown"), "{}", reply.notes());
    let peak = peak_kib(&server);
    assert!(peak < CEILING_KIB, "the daemon took {peak} KiB");
}

/// What a thread of the daemon has taken of a processor's time, in hundredths of a second (`proc_pid_stat(5)`).
fn thread_time(server: &Server, name: &str) -> u64 {
    let tasks = format!("/proc/{}/task", server.daemon().as_raw_nonzero());
    let stats = std::fs::read_dir(tasks).unwrap().map(|task| {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        let (head, rest) = stat.rsplit_once(") ").unwrap_or_default();
        let of_it = head.split_once('(').is_some_and(|(_, own)| own == name);
        let times = rest.split(' ').skip(11).take(2);
        let sum = times.map(|time| time.parse::<u64>().unwrap()).sum::<u64>();
        if of_it { sum } else { 0 }
    });
    stats.sum()
}

#[tokio::test]
async fn a_lone_command_that_goes_on_leaves_the_thread_of_the_connections() {
    let server = start_server(&["--no-key"]);
    let mut client = server.connect().await;
    client.check_alive().await;
    let before = thread_time(&server, "connections");
    // Much at one time, then something again and again.
    let command = "head -c 200000000 /dev/zero; for ((i = 0; i < 40000; i++)); do echo; done";
    let reply = client.bash(command).await;
    assert_eq!(reply.check_done().details()["stdout_bytes"], 200_040_000);
    let connections = thread_time(&server, "connections") - before;
    let workers = thread_time(&server, "tokio-rt-worker");
    assert!(
        workers > 4 * connections,
        "{workers} on the workers, {connections} on the thread of the connections"
    );
}
