//! A harness that stops reading while results and output pile up: bounded memory, calls still end, nothing is lost (protocol section 7).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::binary::{Server, start_server};
use crate::support::processes::{expect_none, running_with};
use crate::support::{Client, SOON, slow_tests_run};

/// Results of about a megabyte that nobody reads.
const RESULTS: usize = 200;

/// What the daemon may take at its peak while they wait, in MB. A debug build has more code in memory, and encodes so
/// slowly that more outputs wait for that at one time.
const CEILING_MB: f64 = if cfg!(debug_assertions) { 116.0 } else { 96.0 };

/// Connects with a heartbeat of the test's choice.
async fn connect(server: &Server, heartbeat: Duration) -> Client {
    let mut client = Client::connect(server.address(), None).await;
    let heartbeat = u64::try_from(heartbeat.as_millis()).unwrap();
    client
        .send_welcome_with(json!({"heartbeat_ms": heartbeat}))
        .await;
    client
}

/// Sends everything at once: a flood, one call to be cancelled, one with a deadline, and the large results.
async fn send_all(client: &mut Client, sleeps: &[String; 2]) {
    let flood = json!({"command": "while :; do echo flood; done", "timeout_ms": 600_000});
    client.send_call_as("flood", "bash", flood, json!({})).await;
    let bash = |command: &String| json!({"command": format!("{command}; true")});
    client
        .send_call_as("cancelled", "bash", bash(&sleeps[0]), json!({}))
        .await;
    client
        .send_call_as(
            "late",
            "bash",
            bash(&sleeps[1]),
            json!({"deadline_ms": 3_000}),
        )
        .await;
    let reads: Vec<String> = (0..RESULTS)
        .map(|at| {
            let params = json!({"session_id": client.session, "tool_call_id": format!("read-{at}"),
                "name": "read", "input": {"path": "large", "limit": 100_000}});
            json!({"method": "tool.call", "params": params}).to_string()
        })
        .collect();
    for read in reads {
        client.send_text(read).await;
    }
}

/// Reads nothing for a while; a cancel and a deadline act meanwhile. Returns the peak of the daemon's memory in MB.
async fn hold_out(
    server: &Server,
    client: &mut Client,
    sleeps: &[String; 2],
    time: Duration,
) -> f64 {
    let begun = Instant::now();
    let running = |sleep: &str| !running_with(sleep).is_empty();
    while !running(&sleeps[0]) {
        assert!(
            begun.elapsed() < SOON,
            "the call to be cancelled has not begun"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    client.send_cancel("cancelled").await;
    expect_none("a cancelled command is", SOON, || running_with(&sleeps[0]));
    expect_none("a command past its deadline is", SOON, || {
        running_with(&sleeps[1])
    });
    tokio::time::sleep(time.saturating_sub(begun.elapsed())).await;
    let [now, peak] = ["VmRSS", "VmHWM"].map(|field| server.memory_mib(field) * 1.048_576);
    println!("resident {now:.1} MB, at its peak {peak:.1} MB");
    peak
}

/// Takes every result, each exactly once, and returns how many of them are whole.
async fn expect_all(client: &mut Client) -> usize {
    client.send_cancel("flood").await;
    let mut outcomes = BTreeMap::new();
    let mut whole = 0;
    while outcomes.len() < RESULTS + 3 {
        let (id, reply) = client.expect_any_result(3 * SOON).await;
        let outcome = format!("{} {}", reply.outcome(), reply.code());
        whole += usize::from(reply.data().len() == 1_000_000);
        let before = outcomes.insert(id.clone(), outcome);
        assert_eq!(before, None, "{id} came twice: {outcomes:#?}");
    }
    let rest = client.drain(Duration::from_millis(500)).await;
    assert!(
        rest.iter().all(|frame| frame["method"] != "tool.result"),
        "{}",
        rest.len()
    );
    let mut counts = BTreeMap::<&str, usize>::new();
    for outcome in outcomes.values() {
        *counts.entry(outcome).or_default() += 1;
    }
    println!("{counts:?}");
    assert_eq!(outcomes["cancelled"], "cancelled cancelled");
    assert_eq!(outcomes["late"], "timed_out deadline_exceeded");
    assert_eq!(outcomes["flood"], "cancelled cancelled");
    let known = ["succeeded ", "failed result_too_large", "failed overloaded"];
    assert!(
        outcomes
            .iter()
            .filter(|(id, _)| id.starts_with("read"))
            .all(|(_, outcome)| known.contains(&outcome.as_str()))
    );
    whole
}

async fn start_deaf(heartbeat: Duration) -> (Server, Client, [String; 2]) {
    let server = start_server(&["--no-key"]);
    std::fs::write(
        server.workspace().join("large"),
        ("x".repeat(99) + "\n").repeat(10_000),
    )
    .unwrap();
    let mut client = connect(&server, heartbeat).await;
    client.check_alive().await;
    let own = std::process::id();
    let sleeps = [
        format!("sleep 7461.{own}{}", heartbeat.as_secs()),
        format!("sleep 7462.{own}{}", heartbeat.as_secs()),
    ];
    send_all(&mut client, &sleeps).await;
    (server, client, sleeps)
}

#[tokio::test]
async fn a_minute_without_reading_takes_bounded_memory_and_loses_nothing() {
    if !slow_tests_run() {
        return;
    }
    let (server, mut client, sleeps) = start_deaf(Duration::from_secs(45)).await;
    let peak = hold_out(&server, &mut client, &sleeps, Duration::from_mins(1)).await;
    let whole = expect_all(&mut client).await;
    println!("peak {peak:.1} MB, {whole} of {RESULTS} results whole");
    assert!(peak <= CEILING_MB, "the daemon took {peak:.1} MB");
    assert!(whole >= 32, "only {whole} results came whole");
}

#[tokio::test]
async fn a_harness_that_was_given_up_as_deaf_gets_everything_on_its_next_connection() {
    if !slow_tests_run() {
        return;
    }
    let (server, mut client, sleeps) = start_deaf(Duration::from_secs(1)).await;
    let peak = hold_out(&server, &mut client, &sleeps, Duration::from_secs(8)).await;
    let mut next = connect(&server, Duration::from_secs(15)).await;
    // No token: only where the first connection has been given up may the session be had.
    next.send("session.open", json!({"session_id": "s-1"}))
        .await;
    next.expect("session.opened").await;
    let whole = expect_all(&mut next).await;
    println!("peak {peak:.1} MB, {whole} of {RESULTS} results whole");
    assert!(peak <= CEILING_MB, "the daemon took {peak:.1} MB");
    assert!(whole >= 32, "only {whole} results came whole");
}

#[tokio::test]
async fn the_results_of_a_stop_reach_a_harness_that_reads_slowly() {
    let mut server = start_server(&["--no-key"]);
    std::fs::write(
        server.workspace().join("large"),
        ("x".repeat(99) + "\n").repeat(10_000),
    )
    .unwrap();
    let mut client = connect(&server, Duration::from_secs(15)).await;
    let mut ids = vec![
        client
            .send_call("bash", json!({"command": "echo begun; sleep 7463"}))
            .await,
    ];
    client.expect("tool.progress").await;
    for _ in 0..8 {
        ids.push(
            client
                .send_call("read", json!({"path": "large", "limit": 100_000}))
                .await,
        );
    }
    server.send_signal(Signal::TERM);
    let begun = Instant::now();
    // Longer than a quick stop takes; the last of the results are written only then.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let stopped = client.expect_result(&ids[0]).await;
    assert_eq!(stopped.code(), "shutting_down");
    for id in &ids[1..] {
        let reply = client.expect_result(id).await;
        assert!(
            reply.code() == "shutting_down" || reply.data().len() == 1_000_000,
            "{id}: {}",
            reply.code()
        );
    }
    assert_eq!(client.expect_close().await, 1001);
    let (code, log) = server.expect_end(Duration::from_secs(8).saturating_sub(begun.elapsed()));
    assert_eq!(code, Some(0), "{log}");
}
