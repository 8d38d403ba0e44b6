//! Calls and sessions survive the death of the daemon: finished calls are answered from the journal, interrupted ones as
//! unknown, and nothing runs twice (case BASH-18, protocol section 7).

use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::binary::{Server, start_server};
use crate::support::{Client, Reply, SOON};

const ARGUMENTS: [&str; 1] = ["--no-key"];

/// What a record takes that says of a call with a short id that it was delivered, and of a token.
const DELIVERED_BYTES: u64 = 24;
const TOKEN_BYTES: u64 = 49;

fn length(server: &Server) -> u64 {
    std::fs::metadata(server.journal()).unwrap().len()
}

/// Waits until the journal has grown by so much: some things are noted a moment after they are said.
async fn expect_growth(server: &Server, before: u64, growth: u64) {
    let until = Instant::now() + SOON;
    while length(server) < before + growth {
        assert!(
            Instant::now() < until,
            "it has {} bytes, and had {before}",
            length(server)
        );
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

/// Waits for a result and does not acknowledge it.
async fn expect_unacknowledged(client: &mut Client, id: &str) -> Reply {
    let wanted =
        |frame: &Value| frame["method"] == "tool.result" && frame["params"]["tool_call_id"] == id;
    let frame = client
        .expect_within(&format!("the result of {id}"), SOON, wanted)
        .await;
    Reply(frame["params"].clone())
}

/// Opens a session and returns the token that comes with it.
async fn open(client: &mut Client, params: Value) -> String {
    params["session_id"]
        .as_str()
        .unwrap()
        .clone_into(&mut client.session);
    client.send("session.open", params).await;
    let opened = client.expect("session.opened").await;
    opened["resume_token"].as_str().unwrap().to_owned()
}

/// The ids of the results that come by themselves once the session is opened again.
async fn results_that_come(server: &Server) -> Vec<String> {
    let mut client = server.connect().await;
    open(&mut client, json!({"session_id": "s-1"})).await;
    client.send_text("{}").await;
    client.expect("protocol.error").await;
    let mut ids = Vec::new();
    for frame in client.drain(std::time::Duration::from_millis(300)).await {
        if frame["method"] == "tool.result" {
            ids.push(frame["params"]["tool_call_id"].as_str().unwrap().to_owned());
        }
    }
    ids
}

fn runs(server: &Server) -> String {
    std::fs::read_to_string(server.workspace().join("runs")).unwrap()
}

#[tokio::test]
async fn a_finished_call_is_answered_after_a_kill_and_does_not_run_again() {
    let mut server = start_server(&ARGUMENTS);
    let mut client = server.connect().await;
    assert_eq!(client.update["params"]["environment"]["journal"], "disk");
    let input = json!({"command": "echo run >>runs; cat runs; echo é >&2"});
    client
        .send_call_as("c", "bash", input.clone(), json!({}))
        .await;
    let first = client.expect_result("c").await;
    assert_eq!(first.check_done().data(), "run\né\nexit_code: 0");
    for _ in 0..3 {
        server.kill_and_start_again(&ARGUMENTS);
        let mut client = server.connect().await;
        client
            .send_call_as("c", "bash", input.clone(), json!({}))
            .await;
        let again = client.expect_result("c").await;
        assert_eq!(again.0, first.0);
        client
            .send_call_as(
                "c",
                "bash",
                json!({"command": "echo other >>runs"}),
                json!({}),
            )
            .await;
        let error = client.expect("protocol.error").await;
        assert_eq!(
            (&error["code"], &error["tool_call_id"]),
            (&json!("duplicate_call_id"), &json!("c"))
        );
        client.check_alive().await;
    }
    assert_eq!(runs(&server), "run\n");
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let journal = server.journal();
    assert_eq!(
        (mode(&journal), mode(journal.parent().unwrap())),
        (0o600, 0o700)
    );
    let text = String::from_utf8_lossy(&std::fs::read(&journal).unwrap()).into_owned();
    assert!(!text.contains("echo run"), "no input is kept");
}

#[tokio::test]
async fn a_call_that_was_running_is_unknown_after_a_kill_and_does_not_run_again() {
    let mut server = start_server(&ARGUMENTS);
    let mut client = server.connect().await;
    let input = json!({"command": "echo run >>runs; echo begun; sleep 7411"});
    client
        .send_call_as("c", "bash", input.clone(), json!({}))
        .await;
    client.expect("tool.progress").await;
    server.kill_and_start_again(&ARGUMENTS);
    let mut client = server.connect().await;
    open(&mut client, json!({"session_id": "s-1"})).await;
    let unknown = client.expect_result("c").await;
    assert_eq!(
        (unknown.outcome(), unknown.code()),
        ("unknown", "outcome_unknown")
    );
    for restart in [false, true] {
        if restart {
            server.kill_and_start_again(&ARGUMENTS);
            client = server.connect().await;
        }
        client
            .send_call_as("c", "bash", input.clone(), json!({}))
            .await;
        assert_eq!(client.expect_result("c").await.0, unknown.0);
    }
    client.check_alive().await;
    assert_eq!(runs(&server), "run\n");
}

#[tokio::test]
async fn what_was_acknowledged_does_not_come_again_after_a_kill_and_the_rest_does() {
    let mut server = start_server(&ARGUMENTS);
    let mut client = server.connect().await;
    for at in 1..=4 {
        client
            .send_call_as(
                &format!("c-{at}"),
                "bash",
                json!({"command": format!("echo {at}")}),
                json!({}),
            )
            .await;
        expect_unacknowledged(&mut client, &format!("c-{at}"))
            .await
            .check_done();
    }
    let before = length(&server);
    for id in ["c-1", "c-3"] {
        client
            .send(
                "tool.result.ack",
                json!({"session_id": "s-1", "tool_call_id": id}),
            )
            .await;
    }
    expect_growth(&server, before, 2 * DELIVERED_BYTES).await;
    for _ in 0..2 {
        server.kill_and_start_again(&ARGUMENTS);
        assert_eq!(results_that_come(&server).await, ["c-2", "c-4"]);
    }
}

#[tokio::test]
async fn an_orderly_stop_forgets_nothing_either() {
    let mut server = start_server(&ARGUMENTS);
    let mut client = server.connect().await;
    let input = json!({"command": "echo run >>runs"});
    client
        .send_call_as("c-1", "bash", input.clone(), json!({}))
        .await;
    client.expect_result("c-1").await.check_done();
    client
        .send_call_as("c-2", "bash", json!({"command": "echo two"}), json!({}))
        .await;
    expect_unacknowledged(&mut client, "c-2").await.check_done();
    server.send_signal(Signal::TERM);
    assert_eq!(client.expect_close().await, 1001);
    server.expect_end(SOON);
    server.start_again(&ARGUMENTS);
    assert_eq!(results_that_come(&server).await, ["c-2"]);
    let mut client = server.connect().await;
    client.send_call_as("c-1", "bash", input, json!({})).await;
    client.expect_result("c-1").await.check_done();
    assert_eq!(runs(&server), "run\n");
}

#[tokio::test]
async fn a_session_that_was_closed_is_new_after_a_kill() {
    let mut server = start_server(&ARGUMENTS);
    let mut client = server.connect().await;
    client
        .send_call_as("c", "bash", json!({"command": "echo first"}), json!({}))
        .await;
    client.expect_result("c").await.check_done();
    client
        .send("session.close", json!({"session_id": "s-1"}))
        .await;
    client.expect("session.closed").await;
    server.kill_and_start_again(&ARGUMENTS);
    let mut client = server.connect().await;
    client
        .send_call_as("c", "bash", json!({"command": "echo second"}), json!({}))
        .await;
    assert_eq!(
        client.expect_result("c").await.data(),
        "second\nexit_code: 0"
    );
}

#[tokio::test]
async fn a_result_that_the_journal_does_not_hold_is_said_to_be_too_large() {
    let mut server = start_server(&ARGUMENTS);
    let mut client = server.connect().await;
    std::fs::write(
        server.workspace().join("large"),
        "a line of text\n".repeat(6_000),
    )
    .unwrap();
    let input = json!({"path": "large", "limit": 6_000});
    client
        .send_call_as("c", "read", input.clone(), json!({}))
        .await;
    assert_eq!(
        expect_unacknowledged(&mut client, "c").await.data().len(),
        90_000
    );
    server.kill_and_start_again(&ARGUMENTS);
    let mut client = server.connect().await;
    open(&mut client, json!({"session_id": "s-1"})).await;
    let reply = client.expect_result("c").await;
    reply.check_failed("result_too_large", &["too large", "do not assume"]);
    client.send_call_as("c", "read", input, json!({})).await;
    assert_eq!(client.expect_result("c").await.0, reply.0);
}

#[tokio::test]
async fn tokens_outlive_every_restart_and_no_other_is_taken() {
    let mut server = start_server(&ARGUMENTS);
    let mut client = server.connect().await;
    let mut tokens = vec![open(&mut client, json!({"session_id": "s"})).await];
    client.check_alive().await;
    for _ in 0..2 {
        server.kill_and_start_again(&ARGUMENTS);
        let before = length(&server);
        let mut holder = server.connect().await;
        let shown = tokens.last().unwrap().clone();
        let wrong = json!({"session_id": "s", "resume_token": format!("{shown}x")});
        holder.send("session.open", wrong).await;
        assert_eq!(
            holder.expect("protocol.error").await["code"],
            "session_in_use"
        );
        tokens.push(
            open(
                &mut holder,
                json!({"session_id": "s", "resume_token": shown}),
            )
            .await,
        );
        expect_growth(&server, before, TOKEN_BYTES).await;
        for token in &tokens {
            let mut other = server.connect().await;
            let again = open(
                &mut other,
                json!({"session_id": "s", "resume_token": token}),
            )
            .await;
            assert_eq!(Some(&again), tokens.last());
            assert_eq!(
                holder.expect("session.closed").await["reason"],
                "taken_over"
            );
            holder = other;
        }
    }
    let text = std::fs::read(server.journal()).unwrap();
    for token in tokens {
        let found = text
            .windows(token.len())
            .any(|part| part == token.as_bytes());
        assert!(!found, "a token stands in the journal");
    }
}

#[tokio::test]
async fn a_session_goes_on_in_its_directory_and_says_when_that_is_gone() {
    let mut server = start_server(&ARGUMENTS);
    let sub = server.workspace().join("sub");
    std::fs::create_dir(&sub).unwrap();
    let mut client = server.connect().await;
    open(&mut client, json!({"session_id": "s", "workspace": "sub"})).await;
    client.bash("pwd").await.check_done();
    server.kill_and_start_again(&ARGUMENTS);
    let mut client = server.connect().await;
    client.session = "s".to_owned();
    client
        .send_call_as("d", "bash", json!({"command": "pwd"}), json!({}))
        .await;
    let reply = client.expect_result("d").await;
    assert_eq!(reply.data(), format!("{}\nexit_code: 0", sub.display()));
    std::fs::remove_dir(&sub).unwrap();
    server.kill_and_start_again(&ARGUMENTS);
    let mut client = server.connect().await;
    client.session = "s".to_owned();
    client
        .send_call_as("d", "bash", json!({"command": "pwd"}), json!({}))
        .await;
    assert_eq!(
        client.expect_result("d").await.0,
        reply.0,
        "what is known is answered"
    );
    client
        .send_call_as("e", "bash", json!({"command": "touch ran"}), json!({}))
        .await;
    client
        .expect_result("e")
        .await
        .check_failed("session_closed", &["workspace"]);
    open(&mut client, json!({"session_id": "s", "workspace": "."})).await;
    client
        .send_call_as("e", "bash", json!({"command": "ls"}), json!({}))
        .await;
    assert_eq!(client.expect_result("e").await.data(), "exit_code: 0");
}

#[tokio::test]
async fn a_session_that_has_lost_its_variables_runs_nothing_until_it_has_them_again() {
    let mut server = start_server(&ARGUMENTS);
    let mut client = server.connect().await;
    let params = json!({"session_id": "s", "env": {"GREETING": "a-value-never-kept"}});
    open(&mut client, params.clone()).await;
    let input = json!({"command": "echo ${GREETING:+there}; echo run >>runs"});
    client
        .send_call_as("c", "bash", input.clone(), json!({}))
        .await;
    let first = client.expect_result("c").await;
    server.kill_and_start_again(&ARGUMENTS);
    let text = std::fs::read(server.journal()).unwrap();
    assert!(!String::from_utf8_lossy(&text).contains("never-kept"));
    let mut client = server.connect().await;
    open(&mut client, json!({"session_id": "s"})).await;
    client
        .send_call_as("c", "bash", input.clone(), json!({}))
        .await;
    assert_eq!(
        client.expect_result("c").await.0,
        first.0,
        "what is known is answered"
    );
    client
        .send_call_as("d", "bash", input.clone(), json!({}))
        .await;
    client
        .expect_result("d")
        .await
        .check_failed("session_closed", &["env", "session.open"]);
    open(&mut client, params).await;
    client.send_call_as("d", "bash", input, json!({})).await;
    assert_eq!(
        client.expect_result("d").await.data(),
        "there\nexit_code: 0"
    );
    assert_eq!(runs(&server), "run\nrun\n");
}
