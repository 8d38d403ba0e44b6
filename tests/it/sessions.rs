//! Sessions belong to the daemon: opened, closed, held, taken over; and no call in them runs twice.

use std::time::Duration;

use bma_executor::dispatch::{Pace, Run, Tool, ToolInput, Toolbox};
use bma_executor::tools::Ctx;
use serde_json::json;

use crate::support::executor::Options;
use crate::support::{Client, Executor, Reply, SOON, start_executor, start_executor_with};

async fn open_session(client: &mut Client, params: serde_json::Value) -> serde_json::Value {
    client.send("session.open", params).await;
    client.expect("session.opened").await
}

#[tokio::test]
async fn a_call_opens_its_session_on_the_root_workspace() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    client.check_alive().await;
    let opened = client.expect("session.opened").await;
    assert_eq!(opened["session_id"], "s-1");
    assert_eq!(opened["workspace"], executor.workspace().to_str().unwrap());
}

#[tokio::test]
async fn a_session_works_in_its_own_directory_with_its_own_variables() {
    let executor = start_executor();
    executor.write_file("sub/here.txt", "x");
    let mut client = executor.connect().await;
    client.session = "s-sub".to_owned();
    let params =
        json!({"session_id": "s-sub", "workspace": "sub", "env": {"GREETING": "from the session"}});
    let opened = open_session(&mut client, params).await;
    assert_eq!(
        opened["workspace"],
        executor.workspace().join("sub").to_str().unwrap()
    );
    let reply = client.bash("pwd; echo $GREETING; ls").await;
    let expected = format!(
        "{}/sub\nfrom the session\nhere.txt\nexit_code: 0",
        executor.workspace().display()
    );
    assert_eq!(reply.data(), expected);
    let reply = client
        .call(
            "bash",
            json!({"command": "echo $GREETING", "env": {"GREETING": "from the call"}}),
        )
        .await;
    assert_eq!(reply.data(), "from the call\nexit_code: 0");
    client
        .call("read", json!({"path": "../outside.txt"}))
        .await
        .check_tool_error(&["../outside.txt"]);
}

#[tokio::test]
async fn a_session_cannot_be_opened_outside_or_on_nothing() {
    let executor = start_executor();
    executor.write_file("file.txt", "x");
    std::os::unix::fs::symlink("/", executor.workspace().join("out")).unwrap();
    let mut client = executor.connect().await;
    for workspace in ["..", "/", "/etc", "out", "out/etc", "missing", "file.txt"] {
        client
            .send(
                "session.open",
                json!({"session_id": "s-bad", "workspace": workspace}),
            )
            .await;
        let error = client.expect("protocol.error").await;
        assert_eq!(
            (&error["code"], &error["session_id"]),
            (&json!("invalid_input"), &json!("s-bad")),
            "{workspace}"
        );
        assert!(
            error["message"].as_str().unwrap().contains(workspace),
            "{workspace}: {error}"
        );
    }
    client.check_alive().await;
}

#[tokio::test]
async fn closing_a_session_ends_its_calls_and_its_background_processes() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let background = client
        .bash("sleep 7401 >/dev/null 2>&1 </dev/null & echo started")
        .await;
    assert_eq!(background.data(), "started\nexit_code: 0");
    let running = client
        .send_call("bash", json!({"command": "echo begun; sleep 7402"}))
        .await;
    client
        .expect_within("progress", SOON, |frame| frame["method"] == "tool.progress")
        .await;
    client
        .send("session.close", json!({"session_id": "s-1"}))
        .await;
    let reply = client.expect_result(&running).await;
    assert_eq!(
        (reply.outcome(), reply.code()),
        ("cancelled", "session_closed")
    );
    assert!(
        reply.data().contains("begun"),
        "what it printed is kept: {}",
        reply.data()
    );
    let closed = client.expect("session.closed").await;
    assert_eq!(closed["reason"], "closed_by_harness");
    assert!(
        closed["processes_killed"].as_u64().unwrap() >= 2,
        "{closed}"
    );
    for marker in ["sleep 7401", "sleep 7402"] {
        assert_eq!(
            crate::support::processes::running_with(marker),
            Vec::<String>::new()
        );
    }
    client
        .bash("echo no")
        .await
        .check_failed("session_closed", &["session.open"]);
    open_session(&mut client, json!({"session_id": "s-1"})).await;
    client.check_alive().await;
}

#[tokio::test]
async fn the_results_of_a_closed_session_come_before_its_end() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    for round in 0..5 {
        client.session = format!("s-{round}");
        let mut ids = Vec::new();
        for _ in 0..4 {
            ids.push(
                client
                    .send_call("bash", json!({"command": "sleep 20"}))
                    .await,
            );
        }
        client.expect("session.opened").await;
        client
            .send("session.close", json!({"session_id": client.session}))
            .await;
        let end = |frame: &serde_json::Value| frame["method"] == "session.closed";
        client
            .expect_within("the end of the session", SOON, end)
            .await;
        let before = client.drain(Duration::ZERO).await;
        let results = before
            .iter()
            .filter(|frame| frame["method"] == "tool.result");
        assert_eq!(results.count(), ids.len(), "round {round}");
    }
}

#[tokio::test]
async fn closing_what_is_not_open_is_an_error_and_nothing_more() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    client
        .send("session.close", json!({"session_id": "s-none"}))
        .await;
    assert_eq!(
        client.expect("protocol.error").await["code"],
        "session_closed"
    );
    client.check_alive().await;
}

#[tokio::test]
async fn several_harnesses_work_side_by_side_in_their_own_sessions() {
    let executor = start_executor();
    let mut clients = Vec::new();
    for at in 0..4 {
        let mut client = executor.connect().await;
        client.session = format!("s-{at}");
        clients.push(client);
    }
    for (at, client) in clients.iter_mut().enumerate() {
        let id = client
            .send_call("bash", json!({"command": format!("sleep 0.2; echo {at}")}))
            .await;
        assert_eq!(id, "c-1", "the ids of sessions are apart");
    }
    for (at, client) in clients.iter_mut().enumerate() {
        assert_eq!(
            client.expect_result("c-1").await.data(),
            format!("{at}\nexit_code: 0")
        );
    }
}

#[tokio::test]
async fn a_session_that_another_connection_holds_is_in_use() {
    let executor = start_executor();
    let mut holder = executor.connect().await;
    let running = holder
        .send_call("bash", json!({"command": "sleep 1; echo mine"}))
        .await;
    let mut other = executor.connect().await;
    other
        .send_call_as(
            "other-1",
            "bash",
            json!({"command": "touch ran"}),
            json!({}),
        )
        .await;
    other
        .expect_result("other-1")
        .await
        .check_failed("session_in_use", &["resume_token"]);
    other.send_cancel(&running).await;
    other
        .send("session.open", json!({"session_id": "s-1"}))
        .await;
    assert_eq!(
        other.expect("protocol.error").await["code"],
        "session_in_use"
    );
    other
        .send(
            "session.open",
            json!({"session_id": "s-1", "resume_token": "wrong"}),
        )
        .await;
    assert_eq!(
        other.expect("protocol.error").await["code"],
        "session_in_use"
    );
    other
        .send("session.close", json!({"session_id": "s-1"}))
        .await;
    assert_eq!(
        other.expect("protocol.error").await["code"],
        "session_in_use"
    );
    assert_eq!(
        holder.expect_result(&running).await.data(),
        "mine\nexit_code: 0",
        "a stranger's cancel is ignored"
    );
    assert!(!executor.workspace().join("ran").exists());
}

#[tokio::test]
async fn the_token_takes_a_session_over_from_a_live_connection() {
    let executor = start_executor();
    let mut first = executor.connect().await;
    let running = first
        .send_call("bash", json!({"command": "sleep 1; echo done"}))
        .await;
    let token = first.expect("session.opened").await["resume_token"].clone();
    let mut second = executor.connect().await;
    open_session(
        &mut second,
        json!({"session_id": "s-1", "resume_token": token}),
    )
    .await;
    assert_eq!(first.expect("session.closed").await["reason"], "taken_over");
    assert_eq!(
        second.expect_result(&running).await.data(),
        "done\nexit_code: 0"
    );
    first
        .bash("echo no")
        .await
        .check_failed("session_in_use", &[]);
}

#[tokio::test]
async fn a_lost_socket_cancels_nothing_and_the_result_waits() {
    let executor = start_executor();
    let mut first = executor.connect().await;
    let running = first
        .send_call("bash", json!({"command": "sleep 0.5; echo X >>f; echo X"}))
        .await;
    first.expect("session.opened").await;
    drop(first);
    tokio::time::sleep(Duration::from_millis(800)).await;
    let mut second = executor.connect().await;
    open_session(&mut second, json!({"session_id": "s-1"})).await;
    assert_eq!(
        second.expect_result(&running).await.data(),
        "X\nexit_code: 0"
    );
    assert_eq!(executor.read_file("f"), b"X\n", "it ran once");
    second.session = "s-1".to_owned();
    second
        .send_call_as("next", "bash", json!({"command": "echo alive"}), json!({}))
        .await;
    second.expect_result("next").await.check_done();
}

#[tokio::test]
async fn the_same_call_sent_again_runs_once() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let input = json!({"command": "sleep 0.3; echo run >>f; cat f"});
    client
        .send_call_as("same", "bash", input.clone(), json!({}))
        .await;
    client
        .send_call_as("same", "bash", input.clone(), json!({"deadline_ms": 5_000}))
        .await;
    let first = client.expect_result("same").await;
    assert_eq!(first.data(), "run\nexit_code: 0");
    // Finished by now: the stored result comes again.
    client.send_call_as("same", "bash", input, json!({})).await;
    let again = client.expect_result("same").await;
    assert_eq!(again.0, first.0);
    assert_eq!(executor.read_file("f"), b"run\n", "it ran once");
    let rest = client.drain(Duration::from_millis(200)).await;
    assert!(
        rest.iter().all(|frame| frame["method"] != "tool.result"),
        "one answer too many: {rest:#?}"
    );
}

#[tokio::test]
async fn an_id_used_for_another_call_is_refused_whether_it_runs_or_has_finished() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    client
        .send_call_as(
            "one",
            "bash",
            json!({"command": "sleep 0.5; echo one"}),
            json!({}),
        )
        .await;
    for _ in 0..2 {
        for input in [
            json!({"command": "touch ran"}),
            json!({"command": 5}),
            json!({}),
        ] {
            client
                .send_text(
                    json!({"method": "tool.call", "params":
                {"session_id": "s-1", "tool_call_id": "one", "name": "bash", "input": input}})
                    .to_string(),
                )
                .await;
            let error = client.expect("protocol.error").await;
            assert_eq!(
                (&error["code"], &error["tool_call_id"]),
                (&json!("duplicate_call_id"), &json!("one"))
            );
        }
        // Not a call at all, yet its id is taken.
        client.send_text(r#"{"method":"tool.call","params":{"session_id":"s-1","tool_call_id":"one","name":7}}"#).await;
        assert_eq!(
            client.expect("protocol.error").await["code"],
            "duplicate_call_id"
        );
        // The second time the first call has finished.
        client.drain(Duration::from_millis(700)).await;
    }
    client.check_alive().await;
    assert!(!executor.workspace().join("ran").exists());
}

#[tokio::test]
async fn members_in_another_order_are_the_same_call() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let call = |input: &str| {
        format!(
            r#"{{"method":"tool.call","params":{{"session_id":"s-1","tool_call_id":"o","name":"bash","input":{input}}}}}"#
        )
    };
    client
        .send_text(call(r#"{"command":"echo run >>f","timeout_ms":9000}"#))
        .await;
    client.expect_result("o").await.check_done();
    client
        .send_text(call(
            r#"{ "timeout_ms":9000, "command":"echo\u0020run >>f"}"#,
        ))
        .await;
    client.expect_result("o").await.check_done();
    assert_eq!(executor.read_file("f"), b"run\n", "it ran once");
}

/// Fails in the ways that a tool may fail.
#[derive(Debug)]
struct Panics {
    /// Between two messages of the connection.
    pace: Pace,
}

impl Toolbox for Panics {
    fn run(&self, ctx: Ctx, input: ToolInput) -> Run {
        match input {
            ToolInput::Read(_) => Box::pin(async { panic!("a fault in a tool") }),
            ToolInput::Glob(_) => panic!("a fault before the tool begins"),
            other => bma_executor::dispatch::BuiltIn.run(ctx, other),
        }
    }

    fn pace(&self, _tool: Tool) -> Pace {
        self.pace
    }
}

#[tokio::test]
async fn a_panic_in_a_tool_is_an_internal_result_and_the_session_goes_on() {
    for pace in [Pace::Long, Pace::AtAGlance, Pace::MayBeBrief] {
        check_panics(Panics { pace }).await;
    }
}

async fn check_panics(panics: Panics) {
    let executor: Executor = start_executor_with(Options {
        toolbox: std::sync::Arc::new(panics),
        ..Options::default()
    });
    let mut client = executor.connect().await;
    for (name, input) in [
        ("read", json!({"path": "f"})),
        ("glob", json!({"pattern": "*"})),
    ] {
        let reply: Reply = client.call(name, input).await;
        reply.check_failed("internal", &["log"]);
        assert!(
            !reply.0.to_string().contains("a fault"),
            "the text of a panic stays in the executor"
        );
    }
    client.check_alive().await;
}

#[tokio::test]
async fn a_session_without_a_connection_is_closed_after_its_time() {
    let executor = start_executor_with(Options {
        configure: Box::new(|config| config.limits.session_ttl = Duration::from_millis(300)),
        ..Options::default()
    });
    let mut client = executor.connect().await;
    client
        .bash("sleep 7403 >/dev/null 2>&1 </dev/null &")
        .await
        .check_done();
    drop(client);
    crate::support::processes::expect_none(
        "the background process of a lost session is",
        SOON,
        || crate::support::processes::running_with("sleep 7403"),
    );
}

#[tokio::test]
async fn permission_is_obeyed() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    for (permission, word) in [
        (
            json!({"decision": "deny", "reason": "not on a Sunday"}),
            "not on a Sunday",
        ),
        (json!({"decision": "deny"}), "denied"),
        (json!({"decision": "ask"}), "approval"),
    ] {
        let id = client
            .send_call_with(
                "bash",
                json!({"command": "touch ran"}),
                json!({"permission": permission}),
            )
            .await;
        client
            .expect_result(&id)
            .await
            .check_failed("permission_denied", &[word]);
    }
    let id = client
        .send_call_with(
            "bash",
            json!({"command": "echo ok"}),
            json!({"permission": {"decision": "allow"}}),
        )
        .await;
    client.expect_result(&id).await.check_done();
    assert!(!executor.workspace().join("ran").exists());
}
