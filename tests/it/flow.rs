//! Calls side by side: nothing waits for a long call, cancel and deadline act, the stop is orderly (cases WS-03, WS-04).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::executor::Options;
use crate::support::processes::running_with;
use crate::support::{start_executor, start_executor_with};

const HALF_A_SECOND: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_sleeps_take_as_long_as_one_and_hold_up_nothing() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    client.check_alive().await;
    let begun = Instant::now();
    let mut ids = Vec::new();
    for _ in 0..100 {
        ids.push(
            client
                .send_call("bash", json!({"command": "sleep 2"}))
                .await,
        );
    }
    let cancelled = ids.pop().unwrap();
    while begun.elapsed() < Duration::from_millis(1_500) {
        let pong = client.ping().await;
        assert!(pong < HALF_A_SECOND, "a pong took {pong:?}");
        let sent = Instant::now();
        client.check_alive().await;
        assert!(
            sent.elapsed() < HALF_A_SECOND,
            "an echo took {:?}",
            sent.elapsed()
        );
    }
    let sent = Instant::now();
    client.send_cancel(&cancelled).await;
    let reply = client.expect_result(&cancelled).await;
    assert_eq!((reply.outcome(), reply.code()), ("cancelled", "cancelled"));
    assert!(
        sent.elapsed() < HALF_A_SECOND,
        "the cancel took {:?}",
        sent.elapsed()
    );
    for id in ids {
        client.expect_result(&id).await.check_done();
    }
    let taken = begun.elapsed();
    assert!(
        taken < Duration::from_secs(4),
        "100 sleeps of 2 s took {taken:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_output_holds_up_nothing() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    client.check_alive().await;
    let flood = client
        .send_call("bash", json!({"command": "seq 1 2000000"}))
        .await;
    let mut slowest = Duration::ZERO;
    for at in 0..10 {
        let sent = Instant::now();
        let reply = client.bash(&format!("echo {at}")).await;
        assert_eq!(reply.data(), format!("{at}\nexit_code: 0"));
        slowest = slowest.max(sent.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(
        slowest < Duration::from_secs(1),
        "an echo beside the flood took {slowest:?}"
    );
    let reply = client
        .expect_result_within(&flood, Duration::from_secs(30))
        .await;
    reply.check_done();
    assert!(reply.data().contains("2000000\n"), "the end is kept");
}

#[tokio::test]
async fn progress_streams_output_before_the_end_with_rising_numbers() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    client.check_alive().await;
    let command = "for i in 1 2 3; do echo out $i; echo err $i >&2; sleep 0.3; done";
    let id = client.send_call("bash", json!({"command": command})).await;
    let begun = Instant::now();
    let first = client.expect("tool.progress").await;
    assert!(
        begun.elapsed() < Duration::from_millis(800),
        "the first progress took {:?}",
        begun.elapsed()
    );
    client.expect_result(&id).await.check_done();
    let mut frames = vec![first];
    let rest = client.drain(Duration::from_millis(200)).await;
    frames.extend(
        rest.into_iter()
            .filter(|frame| frame["method"] == "tool.progress")
            .map(|frame| frame["params"].clone()),
    );
    let numbers: Vec<u64> = frames
        .iter()
        .map(|frame| frame["seq"].as_u64().unwrap())
        .collect();
    assert!(
        numbers.windows(2).all(|pair| pair[0] < pair[1]),
        "{numbers:?}"
    );
    for stream in ["stdout", "stderr"] {
        let text: String = frames
            .iter()
            .filter(|frame| frame["stream"] == stream)
            .map(|frame| frame["message"].as_str().unwrap())
            .collect();
        assert!(
            text.starts_with(if stream == "stdout" {
                "out 1\n"
            } else {
                "err 1\n"
            }),
            "{stream}: {text}"
        );
    }
}

#[tokio::test]
async fn a_deadline_ends_a_call_and_keeps_what_it_printed() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    client.check_alive().await;
    let input = json!({"command": "echo STEP-1; echo warn >&2; printf partial; sleep 7411"});
    let sent = Instant::now();
    let id = client
        .send_call_with("bash", input, json!({"deadline_ms": 500}))
        .await;
    let reply = client.expect_result(&id).await;
    assert_eq!(
        (reply.outcome(), reply.code()),
        ("timed_out", "deadline_exceeded")
    );
    assert!(
        sent.elapsed() >= Duration::from_millis(500),
        "it ended after {:?}",
        sent.elapsed()
    );
    assert!(
        sent.elapsed() < Duration::from_secs(4),
        "it ended after {:?}",
        sent.elapsed()
    );
    for text in ["STEP-1", "warn", "partial"] {
        assert!(
            reply.data().contains(text),
            "{text} is lost: {}",
            reply.data()
        );
    }
    assert_eq!(running_with("sleep 7411"), Vec::<String>::new());
    client.check_alive().await;
}

#[tokio::test]
async fn a_deadline_may_be_a_point_in_time_and_one_that_has_passed_runs_nothing() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let now = u64::try_from(now.as_millis()).unwrap();
    let past = client
        .send_call_with(
            "bash",
            json!({"command": "touch ran"}),
            json!({"deadline_ms": now - 1}),
        )
        .await;
    let reply = client.expect_result(&past).await;
    assert_eq!(
        (reply.outcome(), reply.code()),
        ("timed_out", "deadline_exceeded")
    );
    assert!(!executor.workspace().join("ran").exists(), "it ran");
    let soon = client
        .send_call_with(
            "bash",
            json!({"command": "sleep 7412"}),
            json!({"deadline_ms": now + 1_000}),
        )
        .await;
    assert_eq!(client.expect_result(&soon).await.outcome(), "timed_out");
    let far = client
        .send_call_with(
            "bash",
            json!({"command": "echo ok"}),
            json!({"deadline_ms": u64::MAX}),
        )
        .await;
    client.expect_result(&far).await.check_done();
}

#[tokio::test]
async fn a_cancel_that_overtakes_its_call_is_remembered() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    client.send_cancel("early").await;
    client
        .send_call_as("early", "bash", json!({"command": "touch ran"}), json!({}))
        .await;
    let reply = client.expect_result("early").await;
    assert_eq!((reply.outcome(), reply.code()), ("cancelled", "cancelled"));
    client.check_alive().await;
    assert!(!executor.workspace().join("ran").exists(), "it ran");
}

#[tokio::test]
async fn a_cancel_of_a_finished_or_cancelled_call_is_ignored() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let done = client
        .send_call("bash", json!({"command": "echo done"}))
        .await;
    client.expect_result(&done).await.check_done();
    client.send_cancel(&done).await;
    let slow = client
        .send_call("bash", json!({"command": "sleep 7413"}))
        .await;
    client.send_cancel(&slow).await;
    client.send_cancel(&slow).await;
    assert_eq!(client.expect_result(&slow).await.outcome(), "cancelled");
    let frames = client.drain(Duration::from_millis(200)).await;
    assert!(
        frames
            .iter()
            .all(|frame| frame["method"] != "tool.result" && frame["method"] != "protocol.error"),
        "{frames:#?}"
    );
    client.check_alive().await;
}

#[tokio::test]
async fn a_call_beyond_the_limit_is_refused_at_once_and_may_be_sent_again() {
    let executor = start_executor_with(Options {
        configure: Box::new(|config| config.limits.max_concurrent_calls = 2),
        ..Options::default()
    });
    let mut client = executor.connect().await;
    let running = [
        client
            .send_call("bash", json!({"command": "sleep 1"}))
            .await,
        client
            .send_call("bash", json!({"command": "sleep 1"}))
            .await,
    ];
    let sent = Instant::now();
    client
        .send_call_as("third", "bash", json!({"command": "echo third"}), json!({}))
        .await;
    let refused = client.expect_result("third").await;
    refused.check_failed("overloaded", &["2"]);
    assert!(refused.0["error"]["retry_after_ms"].as_u64().unwrap() > 0);
    assert!(
        sent.elapsed() < HALF_A_SECOND,
        "the refusal took {:?}",
        sent.elapsed()
    );
    client.send_cancel(&running[0]).await;
    client.expect_result(&running[0]).await;
    client
        .send_call_as("third", "bash", json!({"command": "echo third"}), json!({}))
        .await;
    assert_eq!(
        client.expect_result("third").await.data(),
        "third\nexit_code: 0"
    );
    client.expect_result(&running[1]).await.check_done();
}

#[tokio::test]
async fn a_result_larger_than_the_harness_takes_is_cut_with_a_note() {
    let executor = start_executor();
    // Each byte takes six in JSON.
    executor.write_file("controls", "\u{1}".repeat(40_000) + "\n");
    let mut client = executor.connect_v1().await;
    client
        .send(
            "harness.welcome",
            json!({"protocol_version": "bma.executor.v1.1", "max_message_bytes": 65_536}),
        )
        .await;
    let reply = client
        .call("read", json!({"path": "controls", "limit": 1}))
        .await;
    let size = reply.0.to_string().len();
    assert!(size <= 65_536, "{size} bytes came");
    assert!(size > 40_000, "only {size} bytes came");
    assert!(
        reply.notes().contains("cut") || reply.notes().contains("clipped"),
        "{}",
        reply.notes()
    );
    client.check_alive().await;
}

#[tokio::test]
async fn large_messages_travel_both_ways_and_small_ones_pass_between() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let content: String = (0..)
        .map(|line| format!("line {line} of a large file, with \"quotes\"\n"))
        .take(200_000)
        .collect();
    client
        .call("write", json!({"path": "large.txt", "content": content}))
        .await
        .check_done();
    let id = client
        .send_call("read", json!({"path": "large.txt", "limit": 1_000_000}))
        .await;
    let reply = client.expect_result(&id).await;
    reply.check_done();
    assert_eq!(reply.data().len(), content.len());
    assert!(reply.data() == content, "the content changed on its way");
}

#[tokio::test]
async fn the_stop_is_announced_ends_calls_and_closes_in_order() {
    let mut executor = start_executor();
    let mut client = executor.connect().await;
    let slow = client
        .send_call("bash", json!({"command": "echo begun; sleep 7414"}))
        .await;
    client.expect("tool.progress").await;
    let begun = Instant::now();
    executor.stop();
    let drain = client.expect("executor.drain").await;
    assert_eq!(drain["reason"], "SIGTERM");
    let late = client
        .send_call("bash", json!({"command": "touch ran"}))
        .await;
    client
        .expect_result(&late)
        .await
        .check_failed("shutting_down", &[]);
    let reply = client.expect_result(&slow).await;
    assert_eq!(
        (reply.outcome(), reply.code()),
        ("cancelled", "shutting_down")
    );
    assert!(reply.data().contains("begun"), "{}", reply.data());
    assert_eq!(
        client.expect("session.closed").await["reason"],
        "shutting_down"
    );
    assert_eq!(client.expect_close().await, 1001);
    executor.join();
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "the stop took {:?}",
        begun.elapsed()
    );
    assert_eq!(running_with("sleep 7414"), Vec::<String>::new());
    assert!(!executor.workspace().join("ran").exists());
}

#[tokio::test]
async fn calls_that_end_within_the_drain_time_end_well() {
    let mut executor = start_executor();
    let mut client = executor.connect().await;
    let quick = client
        .send_call("bash", json!({"command": "sleep 0.5; echo whole"}))
        .await;
    client.expect("session.opened").await;
    executor.stop();
    assert_eq!(
        client.expect_result(&quick).await.data(),
        "whole\nexit_code: 0"
    );
    assert_eq!(client.expect_close().await, 1001);
}
