//! Messages that are too large for one side or the other: nothing is sent in a loop, nothing else is lost (cases WS-01, WS-02).

use std::sync::Arc;
use std::time::Duration;

use bma_executor::dispatch::{Run, ToolInput, Toolbox};
use bma_executor::tools::{Ctx, ToolOutput};
use bma_executor::wire::ContentBlock;
use serde_json::{Value, json};

use crate::half_open::take_up;
use crate::support::dialling::{start_dialling, start_harness};
use crate::support::executor::Options;
use crate::support::{Client, SOON, start_executor, start_executor_with};

/// A text file of 3 MB.
fn large_text() -> String {
    ("x".repeat(99) + "\n").repeat(30_000)
}

/// Makes a large and a small call, and waits for their results without acknowledging them.
async fn two_unacknowledged(client: &mut Client) -> (String, String) {
    let input = json!({"path": "large", "limit": 1_000_000});
    let large = client.send_call("read", input).await;
    let small = client
        .send_call("bash", json!({"command": "echo small"}))
        .await;
    for id in [&large, &small] {
        let arrived = |frame: &Value| {
            frame["method"] == "tool.result" && frame["params"]["tool_call_id"] == **id
        };
        let frame = client.expect_within("a result", SOON, arrived).await;
        assert_eq!(frame["params"]["outcome"], "succeeded", "{id}");
    }
    (large, small)
}

/// What was too large comes as a small result that says so, and what was not comes whole; each once.
async fn check_replaced(client: &mut Client, (large, small): &(String, String)) {
    let reply = client.expect_result(large).await;
    reply.check_failed("result_too_large", &["too large for it"]);
    assert_eq!(
        client.expect_result(small).await.data(),
        "small\nexit_code: 0"
    );
    let rest = client.drain(Duration::from_millis(300)).await;
    assert!(
        rest.iter().all(|frame| frame["method"] != "tool.result"),
        "{rest:#?}"
    );
}

#[tokio::test]
async fn a_result_that_a_dialling_harness_closed_for_does_not_come_whole_again() {
    let executor = start_executor();
    executor.write_file("large", large_text());
    let mut first = executor.connect().await;
    let ids = two_unacknowledged(&mut first).await;
    first.close(1009).await;
    drop(first);
    let mut second = executor.connect().await;
    take_up(&mut second).await;
    check_replaced(&mut second, &ids).await;
}

#[tokio::test]
async fn a_result_that_a_dialled_harness_closed_for_does_not_come_whole_again() {
    let harness = start_harness().await;
    let executor = start_dialling(harness.address(), |_| {});
    executor.write_file("large", large_text());
    let mut first = harness.expect_executor().await;
    first.send_welcome().await;
    let ids = two_unacknowledged(&mut first).await;
    first.close(1009).await;
    drop(first);
    let mut second = harness.expect_executor().await;
    second.send_welcome().await;
    check_replaced(&mut second, &ids).await;
    executor.stop().await;
}

#[tokio::test]
async fn a_large_result_comes_whole_again_after_another_close() {
    let executor = start_executor();
    executor.write_file("large", large_text());
    let mut first = executor.connect().await;
    let (large, small) = two_unacknowledged(&mut first).await;
    first.close(1001).await;
    drop(first);
    let mut second = executor.connect().await;
    take_up(&mut second).await;
    assert!(second.expect_result(&large).await.data() == large_text());
    second.expect_result(&small).await.check_done();
}

/// Takes half a second for a large result.
#[derive(Debug)]
struct Slow;

impl Toolbox for Slow {
    fn run(&self, _: Ctx, _: ToolInput) -> Run {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            ToolOutput {
                content: vec![ContentBlock::text(large_text())],
                is_error: false,
                details: None,
                stopped: None,
            }
        })
    }
}

#[tokio::test]
async fn a_result_that_ends_while_nobody_is_connected_is_as_large_as_its_harness_takes() {
    let executor = start_executor_with(Options {
        toolbox: Arc::new(Slow),
        ..Options::default()
    });
    let mut first = executor.connect().await;
    let id = first.send_call("bash", json!({"command": "true"})).await;
    first.expect("session.opened").await;
    first.cut();
    tokio::time::sleep(Duration::from_millis(800)).await;
    let mut second = executor.connect().await;
    take_up(&mut second).await;
    let reply = second.expect_result(&id).await;
    assert_eq!(
        reply.check_done().data().len(),
        large_text().len(),
        "{}",
        reply.notes()
    );
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_a_dialled_connection_and_the_next_goes_on() {
    let harness = start_harness().await;
    let executor = start_dialling(harness.address(), |limits| {
        limits.max_inbound_bytes = 1 << 20;
    });
    let mut first = harness.expect_executor().await;
    first.send_welcome().await;
    let pending = first
        .send_call("bash", json!({"command": "sleep 1; echo X"}))
        .await;
    first.expect("session.opened").await;
    first.send_text(" ".repeat((1 << 20) + 1)).await;
    assert_eq!(first.expect_close().await, 1009);
    drop(first);
    let mut second = harness.expect_executor().await;
    second.send_welcome().await;
    assert_eq!(
        second.expect_result(&pending).await.data(),
        "X\nexit_code: 0"
    );
    executor.stop().await;
}

#[tokio::test]
async fn results_are_cut_to_what_the_harness_takes_and_others_are_not_lost() {
    let executor = start_executor();
    executor.write_file("huge", ("y".repeat(99) + "\n").repeat(200_000));
    // Each byte takes six in JSON.
    executor.write_file("controls", ("\u{1}".repeat(999) + "\n").repeat(10_000));
    // One that says nothing takes a megabyte.
    let mut client = executor.connect_v1().await;
    let pending = client
        .send_call("bash", json!({"command": "sleep 1; echo X"}))
        .await;
    for path in ["huge", "controls"] {
        let reply = client
            .call("read", json!({"path": path, "limit": 1_000_000}))
            .await;
        assert!(reply.0.to_string().len() <= 1 << 20, "{path}");
        assert!(
            reply.check_done().data().len() > 100_000 && !reply.notes().is_empty(),
            "{path}"
        );
    }
    let noise = json!({"command": "head -c 7000000 /dev/urandom | base64"});
    let reply = client.call("bash", noise).await;
    assert!(reply.check_done().data().len() <= 50_000);
    assert_eq!(
        client.expect_result(&pending).await.data(),
        "X\nexit_code: 0"
    );
    let mut large = executor.connect().await;
    large.session = "s-large".to_owned();
    let reply = large
        .call("read", json!({"path": "huge", "limit": 1_000_000}))
        .await;
    assert_eq!(reply.check_done().data().len(), 20_000_000);
}
