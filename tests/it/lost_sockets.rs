//! Sockets that are reset while calls run and results are on their way (case WS-05).

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use crate::half_open::take_up;
use crate::support::{SOON, start_executor};

const CALLS: usize = 50;

#[tokio::test]
async fn fifty_pending_calls_survive_a_reset_and_each_is_answered_once() {
    let executor = start_executor();
    let mut first = executor.connect().await;
    first.check_alive().await;
    let mut pending = BTreeSet::new();
    for at in 0..CALLS {
        let command = format!("sleep 0.{:02}; echo {at} >>f; echo {at}", 10 + at);
        pending.insert(first.send_call("bash", json!({"command": command})).await);
    }
    // Some results lie unread in the socket, which makes its end a reset.
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.cut();
    let mut second = executor.connect().await;
    take_up(&mut second).await;
    while !pending.is_empty() {
        let (id, reply) = second.expect_any_result(SOON).await;
        reply.check_done();
        assert!(
            pending.remove(&id),
            "{id} came twice, or was acknowledged before"
        );
    }
    let rest = second.drain(Duration::from_millis(300)).await;
    assert!(
        rest.iter().all(|frame| frame["method"] != "tool.result"),
        "{rest:#?}"
    );
    let ran = String::from_utf8(executor.read_file("f")).unwrap();
    let ran: Vec<&str> = ran.lines().collect();
    assert_eq!(ran.len(), CALLS, "each ran once");
    assert_eq!(ran.into_iter().collect::<BTreeSet<_>>().len(), CALLS);
}

#[tokio::test]
async fn a_connection_lost_again_and_again_loses_no_result() {
    let executor = start_executor();
    executor.write_file("large", ("x".repeat(79) + "\n").repeat(10_000));
    let mut client = executor.connect().await;
    let read = client
        .send_call("read", json!({"path": "large", "limit": 100_000}))
        .await;
    client.expect("session.opened").await;
    for _ in 0..10 {
        client.cut();
        client = executor.connect().await;
        take_up(&mut client).await;
    }
    assert_eq!(
        client.expect_result(&read).await.check_done().data().len(),
        800_000
    );
}
