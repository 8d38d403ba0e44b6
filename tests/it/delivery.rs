//! When a result comes again, and what a lost connection leaves behind.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::executor::Options;
use crate::support::{Client, Executor, SOON, start_executor, start_executor_with};

/// Opens the session again on a new connection and returns the ids of the results that come by themselves.
async fn results_after_reconnect(executor: &Executor, v1: bool) -> Vec<String> {
    let mut client = if v1 {
        executor.connect_v1().await
    } else {
        executor.connect().await
    };
    let until = Instant::now() + SOON;
    let frames = loop {
        client
            .send("session.open", json!({"session_id": "s-1"}))
            .await;
        let frames = client.drain(Duration::from_millis(300)).await;
        // The end of the connection before may not have been noticed yet.
        let in_use = |frame: &serde_json::Value| frame["params"]["code"] == "session_in_use";
        if !frames.iter().any(in_use) || Instant::now() > until {
            break frames;
        }
    };
    assert!(
        frames
            .iter()
            .any(|frame| frame["method"] == "session.opened"),
        "{frames:#?}"
    );
    let results = frames
        .iter()
        .filter(|frame| frame["method"] == "tool.result");
    results
        .map(|frame| frame["params"]["tool_call_id"].as_str().unwrap().to_owned())
        .collect()
}

fn start_with_heartbeat(heartbeat: Duration) -> Executor {
    start_executor_with(Options {
        configure: Box::new(move |config| config.limits.heartbeat = heartbeat),
        ..Options::default()
    })
}

#[tokio::test]
async fn an_acknowledged_result_does_not_come_again_and_another_does() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    client.check_alive().await;
    let unacknowledged = client
        .send_call("bash", json!({"command": "echo two"}))
        .await;
    let arrived = |frame: &serde_json::Value| {
        frame["method"] == "tool.result" && frame["params"]["tool_call_id"] == *unacknowledged
    };
    client
        .expect_within("the second result", SOON, arrived)
        .await;
    // An answer to a later message shows that the acknowledgement of the first has been read.
    client.send_text("{}").await;
    client.expect("protocol.error").await;
    drop(client);
    assert_eq!(
        results_after_reconnect(&executor, false).await,
        [unacknowledged]
    );
}

#[tokio::test]
async fn for_v1_a_result_comes_again_unless_its_connection_lived_for_another_heartbeat() {
    let executor = start_with_heartbeat(Duration::from_secs(15));
    let mut client = executor.connect_v1().await;
    client.check_alive().await;
    drop(client);
    assert_eq!(results_after_reconnect(&executor, true).await, ["c-1"]);

    let heartbeat = Duration::from_millis(300);
    let executor = start_with_heartbeat(heartbeat);
    let mut client = executor.connect_v1().await;
    client.check_alive().await;
    // Pings of the executor are answered while the client reads.
    client.drain(2 * heartbeat).await;
    drop(client);
    assert_eq!(
        results_after_reconnect(&executor, true).await,
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn a_harness_that_does_not_read_is_refused_and_others_are_served() {
    let executor = start_executor_with(Options {
        configure: Box::new(|config| config.limits.outbox_bytes = 1 << 20),
        ..Options::default()
    });
    executor.write_file("large", ("x".repeat(79) + "\n").repeat(200_000));
    let mut deaf: Client = executor.connect().await;
    // More than the socket's own buffers hold, so that the second result waits in the executor.
    for _ in 0..3 {
        deaf.send_call("read", json!({"path": "large", "limit": 1_000_000}))
            .await;
    }
    let mut other = executor.connect().await;
    other.session = "s-other".to_owned();
    let until = Instant::now() + SOON;
    loop {
        // Its own further calls are refused as soon as the results wait; nothing of it ever runs again.
        deaf.send_call("bash", json!({"command": "echo run >>ran-for-the-deaf"}))
            .await;
        other.check_alive().await;
        let before = std::fs::metadata(executor.workspace().join("ran-for-the-deaf"))
            .map_or(0, |meta| meta.len());
        deaf.send_call("bash", json!({"command": "echo run >>ran-for-the-deaf"}))
            .await;
        for _ in 0..5 {
            other.check_alive().await;
        }
        let after = std::fs::metadata(executor.workspace().join("ran-for-the-deaf"))
            .map_or(0, |meta| meta.len());
        if after == before {
            break;
        }
        assert!(
            Instant::now() < until,
            "a harness that reads nothing is given more and more"
        );
    }
}
