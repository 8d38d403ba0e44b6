//! A hundred kills at moments of chance while a session is busy: no call runs twice, each id is answered, and no id gets two
//! different answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::support::binary::start_server;
use crate::support::{SOON, slow_tests_run};

const ARGUMENTS: [&str; 3] = ["--no-key", "--log-level", "warn"];
const KILLS: u32 = 100;
const CALLS_PER_LIFE: usize = 8;

/// Calls without an answer, above which a life brings no further ones: a session takes 256 at one time, and a slow machine answers few in a life.
const MOST_OPEN: usize = 128;

/// A number below `most`, of the clock's last digits: no two lives end alike.
fn random(most: u32) -> u32 {
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .subsec_nanos();
    nanos.wrapping_mul(2_654_435_761) % most
}

fn input(id: &str) -> Value {
    json!({"command": format!("echo {id} >>runs; echo {id}")})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_runs_twice_and_each_is_answered_alike_however_often_the_daemon_is_killed() {
    if !slow_tests_run() {
        return;
    }
    let begun = Instant::now();
    let mut server = start_server(&ARGUMENTS);
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut answers: BTreeMap<String, Value> = BTreeMap::new();
    let mut again = 0;
    let mut made = 0;
    for life in 0..=KILLS {
        if life > 0 {
            server.start_again(&ARGUMENTS);
        }
        let mut client = server.connect().await;
        client
            .send("session.open", json!({"session_id": "s-1"}))
            .await;
        if life < KILLS && open.len() < MOST_OPEN {
            made += CALLS_PER_LIFE;
            open.extend((0..CALLS_PER_LIFE).map(|at| format!("c-{life}-{at}")));
        }
        for id in &open {
            client.send_call_as(id, "bash", input(id), json!({})).await;
        }
        let killed = Instant::now() + Duration::from_micros(u64::from(random(60_000)));
        loop {
            let left = if life == KILLS {
                SOON
            } else {
                killed.saturating_duration_since(Instant::now())
            };
            if open.is_empty() || left.is_zero() {
                break;
            }
            let wanted = client.take_any_result(left).await;
            let Some((id, reply)) = wanted else { break };
            open.remove(&id);
            if let Some(before) = answers.insert(id.clone(), reply.0.clone()) {
                again += 1;
                assert_eq!(before, reply.0, "{id} has two answers");
            }
        }
        if life < KILLS {
            kill_process(server.daemon(), Signal::KILL).unwrap();
            server.expect_end(SOON);
        }
    }
    assert!(open.is_empty(), "not answered: {open:?}");
    let runs = std::fs::read_to_string(server.workspace().join("runs")).unwrap();
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for id in runs.lines() {
        *times.entry(id).or_default() += 1;
    }
    let mut unknown = 0;
    for (id, answer) in &answers {
        let ran = times.get(id.as_str()).copied().unwrap_or_default();
        match answer["outcome"].as_str().unwrap() {
            "succeeded" => assert_eq!(ran, 1, "{id}"),
            "unknown" => {
                unknown += 1;
                assert!(ran <= 1, "{id} ran {ran} times");
            }
            _ => panic!("{id}: {answer:#}"),
        }
    }
    assert_eq!(answers.len(), made);
    println!(
        "{} calls, {unknown} unknown, {again} answered again, in {:?}",
        answers.len(),
        begun.elapsed()
    );
    assert!(
        unknown > 20 && unknown < answers.len() - 20,
        "the moments were not spread: {unknown} unknown"
    );
}

#[tokio::test]
async fn a_daemon_whose_guardian_alone_was_killed_is_waited_for_and_nothing_runs_twice() {
    let mut server = start_server(&ARGUMENTS);
    let mut client = server.connect().await;
    let busy = json!({"command": "echo busy >>runs; echo begun; sleep 7471"});
    client
        .send_call_as("done", "bash", input("done"), json!({}))
        .await;
    let first = client.expect_result("done").await;
    client
        .send_call_as("busy", "bash", busy.clone(), json!({}))
        .await;
    let runs = server.workspace().join("runs");
    client.expect("tool.progress").await;
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "done\nbusy\n");
    // All that a supervisor knows of. What it guarded stops in order, which takes a while.
    kill_process(server.guardian(), Signal::KILL).unwrap();
    server.expect_end(SOON);
    server.start_again(&ARGUMENTS);
    let mut client = server.connect().await;
    client
        .send_call_as("done", "bash", input("done"), json!({}))
        .await;
    assert_eq!(client.expect_result("done").await.0, first.0);
    client.send_call_as("busy", "bash", busy, json!({})).await;
    let ended = client.expect_result("busy").await;
    assert_ne!(ended.0["outcome"], "succeeded", "{:#}", ended.0);
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "done\nbusy\n");
}
