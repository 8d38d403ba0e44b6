//! A cancel ends the work, not only the waiting: before, during, after and twice, also of what only waits (case WS-07).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::processes::running_with;
use crate::support::{SOON, start_executor};

#[tokio::test]
async fn a_cancelled_command_writes_nothing_any_more() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let marker = format!("sleep 7316.{}", std::process::id());
    let nested = format!("bash -c 'bash -c \"{marker}\"'; true");
    let writes = "while :; do date >>f; sleep 0.1; done";
    for command in [writes, nested.as_str()] {
        let id = client.send_call("bash", json!({"command": command})).await;
        let begun = || {
            executor.workspace().join("f").exists() && command == writes
                || !running_with(&marker).is_empty()
        };
        let until = Instant::now() + SOON;
        while !begun() {
            assert!(Instant::now() < until, "it has not begun: {command}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        client.send_cancel(&id).await;
        let reply = client.expect_result(&id).await;
        assert_eq!(
            (reply.outcome(), reply.code()),
            ("cancelled", "cancelled"),
            "{command}"
        );
        assert_eq!(running_with(&marker), Vec::<String>::new());
    }
    let written = executor.read_file("f");
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(executor.read_file("f"), written, "it goes on writing");
    client.check_alive().await;
}

#[tokio::test]
async fn a_large_write_that_is_cancelled_is_whole_or_leaves_the_old_content() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let content = "new content\n".repeat(200_000);
    for wait in [0, 1, 5, 20, 80] {
        executor.write_file("f", "old");
        let id = client
            .send_call("write", json!({"path": "f", "content": content}))
            .await;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        client.send_cancel(&id).await;
        client.send_cancel(&id).await;
        let reply = client.expect_result(&id).await;
        let now = executor.read_file("f");
        match reply.outcome() {
            "succeeded" => assert!(now == content.as_bytes(), "done, but not whole"),
            "cancelled" => assert_eq!(now, b"old", "cancelled, but changed"),
            other => panic!("{other} came"),
        }
    }
    let rest = client.drain(Duration::from_millis(200)).await;
    assert!(
        rest.iter().all(|frame| frame["method"] != "tool.result"),
        "a further answer came"
    );
}

#[tokio::test]
async fn a_call_that_waits_for_a_place_is_cancelled_without_having_begun() {
    let executor = start_executor();
    executor.write_file("large", ("x".repeat(79) + "\n").repeat(400_000));
    let mut client = executor.connect().await;
    // Four file jobs run at one time; the rest wait.
    let mut ids = Vec::new();
    for _ in 0..24 {
        ids.push(
            client
                .send_call(
                    "read",
                    json!({"path": "large", "offset": 399_000, "limit": 10}),
                )
                .await,
        );
    }
    let last = client
        .send_call("write", json!({"path": "made", "content": "x"}))
        .await;
    client.send_cancel(&last).await;
    let reply = client.expect_result(&last).await;
    // It may have had its place already.
    let made = executor.workspace().join("made").exists();
    assert_eq!(made, reply.outcome() == "succeeded", "{:#}", reply.0);
    for id in ids {
        client.expect_result(&id).await.check_done();
    }
}

#[tokio::test]
async fn cancels_at_every_moment_of_a_call_give_one_answer() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    client.check_alive().await;
    for round in 0..30_u64 {
        let id = client
            .send_call("bash", json!({"command": "sleep 0.01; echo done"}))
            .await;
        tokio::time::sleep(Duration::from_millis(round)).await;
        client.send_cancel(&id).await;
        client.send_cancel(&id).await;
        let reply = client.expect_result(&id).await;
        let whole = reply.outcome() == "succeeded" && reply.data() == "done\nexit_code: 0";
        assert!(whole || reply.outcome() == "cancelled", "{:#}", reply.0);
        client.send_cancel(&id).await;
    }
    let rest = client.drain(Duration::from_millis(300)).await;
    assert!(
        rest.iter().all(|frame| frame["method"] != "tool.result"),
        "{rest:#?}"
    );
    client.check_alive().await;
}
