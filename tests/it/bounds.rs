//! What is kept of results is bounded, and what falls out of a bound is replaced by a result that says so, never lost
//! (protocol section 7).

use std::collections::BTreeMap;
use std::time::Duration;

use bma_executor::limits::Limits;
use serde_json::{Value, json};

use crate::half_open::take_up;
use crate::support::executor::Options;
use crate::support::{Client, Executor, Reply, SOON, start_executor_in, start_executor_with};

fn start_within(change: impl FnOnce(&mut Limits) + Send + 'static) -> Executor {
    start_executor_with(Options {
        configure: Box::new(|config| change(&mut config.limits)),
        ..Options::default()
    })
}

/// Prints `bytes` bytes; returns without an acknowledgement once the result is there.
async fn print(client: &mut Client, id: &str, bytes: usize) -> Reply {
    let command = format!("head -c {bytes} /dev/zero | tr '\\0' x");
    client
        .send_call_as(id, "bash", json!({"command": command}), json!({}))
        .await;
    let wanted =
        |frame: &Value| frame["method"] == "tool.result" && frame["params"]["tool_call_id"] == id;
    let frame = client
        .expect_within(&format!("the result of {id}"), SOON, wanted)
        .await;
    Reply(frame["params"].clone())
}

/// Opens the session again; returns what comes by itself: in order, each id and its error code, empty where it is whole.
async fn what_comes(executor: &Executor) -> Vec<(String, String)> {
    let mut client = executor.connect().await;
    take_up(&mut client).await;
    let frames = client.drain(Duration::from_millis(300)).await;
    let results = frames
        .iter()
        .filter(|frame| frame["method"] == "tool.result");
    let of = |frame: &Value| {
        let reply = Reply(frame["params"].clone());
        (
            reply.0["tool_call_id"].as_str().unwrap().to_owned(),
            reply.code().to_owned(),
        )
    };
    results.map(of).collect()
}

fn expected(codes: &[&str]) -> Vec<(String, String)> {
    codes
        .iter()
        .enumerate()
        .map(|(at, code)| (format!("c-{at}"), (*code).to_owned()))
        .collect()
}

const GONE: &str = "result_too_large";

#[tokio::test]
async fn of_too_many_results_that_wait_the_oldest_come_as_gone() {
    let executor = start_within(|limits| limits.max_kept_results = 3);
    let mut client = executor.connect().await;
    for at in 0..5 {
        print(&mut client, &format!("c-{at}"), 10)
            .await
            .check_done();
    }
    client.cut();
    assert_eq!(
        what_comes(&executor).await,
        expected(&[GONE, GONE, "", "", ""])
    );
}

#[tokio::test]
async fn results_of_any_size_make_room_for_younger_ones_and_no_call_is_refused_for_them() {
    let executor = start_within(|limits| limits.result_memory_bytes = 62_500);
    let mut client = executor.connect().await;
    for at in 0..8 {
        print(&mut client, &format!("c-{at}"), 10_000)
            .await
            .check_done();
    }
    client.cut();
    let come = what_comes(&executor).await;
    let whole = come.iter().filter(|(_, code)| code.is_empty()).count();
    let codes = [[GONE; 8], [""; 8]].concat();
    assert_eq!(
        come,
        expected(&codes[whole..whole + 8]),
        "the oldest go first"
    );
    assert!((3..=4).contains(&whole), "{come:?}");
}

#[tokio::test]
async fn delivered_results_go_before_those_that_wait() {
    let executor = start_within(|limits| limits.result_memory_bytes = 62_500);
    let mut client = executor.connect().await;
    for at in 0..3 {
        print(&mut client, &format!("c-{at}"), 10_000)
            .await
            .check_done();
    }
    for at in 0..10 {
        let id = format!("acknowledged-{at}");
        let reply = print(&mut client, &id, 10_000).await;
        reply.check_done();
        client
            .send(
                "tool.result.ack",
                json!({"session_id": "s-1", "tool_call_id": id}),
            )
            .await;
    }
    // Known, though its result is gone.
    let again = print(&mut client, "acknowledged-0", 10_000).await;
    again.check_failed(GONE, &["do not assume"]);
    client.cut();
    assert_eq!(what_comes(&executor).await, expected(&["", "", ""]));
}

#[tokio::test]
async fn calls_side_by_side_are_not_refused_for_results_that_were_delivered() {
    let executor = start_within(|limits| limits.result_memory_bytes = 400_000);
    let mut client = executor.connect().await;
    executor.write_file("page", "x".repeat(20_000));
    let mut sent = 0;
    for answered in 0..200 {
        while sent < 200 && sent < answered + 4 {
            let input = json!({"path": "page"});
            client
                .send_call_as(&format!("c-{sent}"), "read", input, json!({}))
                .await;
            sent += 1;
        }
        let id = format!("c-{answered}");
        client.expect_result(&id).await.check_done();
    }
}

#[tokio::test]
async fn a_harness_that_never_acknowledges_is_refused_before_anything_is_lost() {
    let executor = start_within(|limits| limits.max_finished_calls = 5);
    let mut client = executor.connect().await;
    for at in 0..5 {
        print(&mut client, &format!("c-{at}"), 10)
            .await
            .check_done();
    }
    print(&mut client, "c-5", 10)
        .await
        .check_failed("overloaded", &["tool.result.ack"]);
    client
        .send(
            "tool.result.ack",
            json!({"session_id": "s-1", "tool_call_id": "c-0"}),
        )
        .await;
    print(&mut client, "c-5", 10).await.check_done();
    let mut v1 = executor.connect_v1().await;
    v1.session = "s-v1".to_owned();
    for at in 0..20 {
        print(&mut v1, &format!("c-{at}"), 10).await.check_done();
    }
}

#[tokio::test]
async fn beyond_the_bound_of_the_daemon_the_calls_that_were_delivered_first_are_forgotten() {
    let executor = start_within(|limits| limits.max_remembered_calls = 6);
    executor.write_file("runs", "");
    let mut client = executor.connect().await;
    let mut call = BTreeMap::new();
    for at in 0..10 {
        client.session = format!("s-{}", at % 2);
        let id = format!("c-{at}");
        let input = json!({"command": format!("echo {id} >>runs")});
        client
            .send_call_as(&id, "bash", input.clone(), json!({}))
            .await;
        client.expect_result(&id).await.check_done();
        call.insert(id, input);
    }
    for (id, at) in [("c-9", 9), ("c-5", 5), ("c-0", 0)] {
        client.session = format!("s-{}", at % 2);
        client
            .send_call_as(id, "bash", call[id].clone(), json!({}))
            .await;
        client.expect_result(id).await.check_done();
    }
    let runs = String::from_utf8(executor.read_file("runs")).unwrap();
    let times = |id: &str| runs.lines().filter(|line| *line == id).count();
    assert_eq!((times("c-9"), times("c-5"), times("c-0")), (1, 1, 2));
}

#[tokio::test]
async fn an_executor_started_over_another_one_s_state_goes_on_with_its_calls() {
    let scratch = tempfile::TempDir::new().unwrap();
    let executor = start_executor_in(scratch.path());
    let mut client = executor.connect().await;
    let reply = print(&mut client, "c-0", 10).await;
    client.cut();
    drop(executor);
    let executor = start_executor_in(scratch.path());
    assert_eq!(what_comes(&executor).await, expected(&[""]));
    let mut client = executor.connect().await;
    assert_eq!(print(&mut client, "c-0", 10).await.0, reply.0);
}
