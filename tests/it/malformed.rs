//! What is not valid gets a clear answer, and the session goes on (case WS-09).

use std::time::Duration;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::support::executor::Options;
use crate::support::{Client, SOON, start_executor, start_executor_with};

/// Sends a text and expects one `protocol.error` of a code whose message holds the words.
async fn check_refused(client: &mut Client, text: &str, code: &str, words: &[&str]) -> Value {
    client.send_text(text).await;
    let shown: String = text.chars().take(80).collect();
    let error = client.expect("protocol.error").await;
    assert_eq!(error["code"], code, "{shown}: {error}");
    for word in words {
        assert!(
            error["message"].as_str().unwrap().contains(word),
            "{shown}: {error}"
        );
    }
    error
}

/// Texts that are no message, with the code and a word of their answer.
const NO_MESSAGES: &[(&str, &str, &str)] = &[
    ("not json", "malformed", "JSON"),
    ("", "malformed", "JSON"),
    ("null", "malformed", "object"),
    ("[1,2,3]", "malformed", "object"),
    ("\"x\"", "malformed", "object"),
    ("{}", "malformed", "method"),
    (r#"{"type":42}"#, "malformed", "method"),
    (r#"{"method":42,"params":{}}"#, "malformed", "method"),
    (
        r#"{"method":"tool.nope","params":{}}"#,
        "unknown_method",
        "tool.nope",
    ),
    (
        r#"{"method":"tool.result","params":{}}"#,
        "unknown_method",
        "tool.result",
    ),
    (r#"{"method":"tool.call"}"#, "malformed", "params"),
    (
        r#"{"method":"tool.call","params":null}"#,
        "malformed",
        "params",
    ),
    (
        r#"{"method":"tool.call","params":[1]}"#,
        "malformed",
        "params",
    ),
    (
        r#"{"method":"tool.cancel","params":["s-1","c-1"]}"#,
        "malformed",
        "params",
    ),
    (
        r#"{"method":"session.open","params":{}}"#,
        "malformed",
        "session_id",
    ),
    (
        r#"{"method":"session.open","method":"tool.call","params":{}}"#,
        "malformed",
        "twice",
    ),
    (
        r#"{"method":"session.open","params":{"session_id":"s","workspace":5}}"#,
        "invalid_input",
        "workspace",
    ),
    (
        r#"{"method":"session.open","params":{"session_id":"s","env":{"A=":"1"}}}"#,
        "invalid_input",
        "env",
    ),
    (
        r#"{"method":"session.open","params":{"session_id":"s","env":{"A":"\u0000"}}}"#,
        "invalid_input",
        "env",
    ),
    (
        r#"{"method":"harness.welcome","params":{"protocol_version":"bma.executor.v1.1","heartbeat_ms":0}}"#,
        "invalid_input",
        "heartbeat_ms",
    ),
    (
        r#"{"method":"harness.welcome","params":{"protocol_version":1}}"#,
        "invalid_input",
        "protocol_version",
    ),
    (
        r#"{"method":"tool.cancel","params":{"session_id":"s","tool_call_id":"\ud800"}}"#,
        "malformed",
        "JSON",
    ),
];

#[tokio::test]
async fn what_is_no_message_is_malformed_and_the_session_goes_on() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let pending = client
        .send_call("bash", json!({"command": "sleep 1; echo pending"}))
        .await;
    for (text, code, word) in NO_MESSAGES {
        check_refused(&mut client, text, code, &[*word]).await;
    }
    client
        .send_message(Message::Binary(b"\x00\x01"[..].into()))
        .await;
    let error = client.expect("protocol.error").await;
    assert!(
        error["message"].as_str().unwrap().contains("binary"),
        "{error}"
    );
    client.check_alive().await;
    assert_eq!(
        client.expect_result(&pending).await.data(),
        "pending\nexit_code: 0"
    );
}

#[tokio::test]
async fn a_call_whose_id_cannot_be_used_gets_a_protocol_error_that_names_it() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let long = format!("\"{}\"", "x".repeat(1 << 20));
    for id in [
        "0",
        "\"\"",
        "null",
        "17",
        "true",
        "[]",
        "{}",
        r#""a\u0000b""#,
        r#""a\nb""#,
        &long,
    ] {
        let text = format!(
            r#"{{"method":"tool.call","params":{{"session_id":"s-1","tool_call_id":{id},"name":"bash","input":{{"command":"touch ran"}}}}}}"#
        );
        let error = check_refused(&mut client, &text, "malformed", &["tool_call_id"]).await;
        assert_eq!(error["session_id"], "s-1");
        assert!(error.to_string().len() < 1_000, "the answer repeats the id");
    }
    let absent = r#"{"method":"tool.call","params":{"session_id":"s-1","name":"bash","input":{"command":"touch ran"}}}"#;
    check_refused(&mut client, absent, "malformed", &["tool_call_id"]).await;
    client.check_alive().await;
    assert!(
        !executor.workspace().join("ran").exists(),
        "a refused call ran"
    );
}

#[tokio::test]
async fn a_call_whose_ids_can_be_read_gets_a_result_whatever_else_is_wrong() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let open = "[".repeat(100_000);
    let cases: Vec<(String, &str)> = vec![
        (r#","name":"bash""#.into(), "input"),
        (r#","input":{}"#.into(), "name"),
        (r#","name":42,"input":{}"#.into(), "name"),
        (r#","name":"bash","input":null"#.into(), "input"),
        (r#","name":"bash","input":[]"#.into(), "input"),
        (
            r#","name":"bash","input":{"command":"touch ran","command":"touch ran"}"#.into(),
            "command",
        ),
        (
            r#","name":"bash","input":{"command":"touch ran"},"deadline_ms":0"#.into(),
            "deadline_ms",
        ),
        (
            r#","name":"bash","input":{"command":"touch ran"},"deadline_ms":-1"#.into(),
            "deadline_ms",
        ),
        (
            r#","name":"bash","input":{"command":"touch ran"},"deadline_ms":0.5"#.into(),
            "deadline_ms",
        ),
        (
            r#","name":"bash","input":{"command":"touch ran"},"deadline_ms":"1000""#.into(),
            "deadline_ms",
        ),
        (
            r#","name":"bash","input":{"command":"touch ran"},"deadline_ms":1e999"#.into(),
            "JSON",
        ),
        (
            r#","name":"bash","input":{"command":"touch ran"},"permission":{"decision":"maybe"}"#
                .into(),
            "permission",
        ),
        (
            r#","name":"bash","input":{"command":"touch ran"},"permission":["allow"]"#.into(),
            "permission",
        ),
        (
            r#","name":"bash","input":{"command":"touch ran \ud800"}"#.into(),
            "JSON",
        ),
        (
            format!(r#","name":"bash","input":{{"command":{deep}}}"#),
            "JSON",
        ),
        (
            format!(r#","name":"bash","input":{{"command":{open}"#),
            "JSON",
        ),
    ];
    for (at, (rest, word)) in cases.iter().enumerate() {
        let id = format!("broken-{at}");
        client
            .send_text(format!(r#"{{"method":"tool.call","params":{{"session_id":"s-1","tool_call_id":"{id}"{rest}}}}}"#))
            .await;
        let reply = client.expect_result(&id).await;
        reply.check_failed("invalid_input", &[word]);
    }
    client.check_alive().await;
    let results = client.drain(Duration::from_millis(100)).await;
    assert!(
        results.iter().all(|frame| frame["method"] != "tool.result"),
        "a second answer came: {results:#?}"
    );
    assert!(
        !executor.workspace().join("ran").exists(),
        "a refused call ran"
    );
}

#[tokio::test]
async fn inputs_that_no_tool_takes_name_the_member_at_fault() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    for (name, input, word) in [
        ("bash", json!({}), "command"),
        ("bash", json!({"command": null}), "command"),
        ("bash", json!({"command": ["ls"]}), "command"),
        ("bash", json!({"command": "touch ran", "cwd": 1}), "cwd"),
        (
            "bash",
            json!({"command": "touch ran", "env": {"A": 1}}),
            "env",
        ),
        ("bash", json!({"command": "touch ran; echo \0"}), "command"),
        (
            "bash",
            json!({"command": "touch ran", "cwd": "a\0b"}),
            "cwd",
        ),
        (
            "bash",
            json!({"command": "touch ran", "env": {"": "x"}}),
            "env",
        ),
        (
            "bash",
            json!({"command": "touch ran", "env": {"A=B": "x"}}),
            "env",
        ),
        (
            "bash",
            json!({"command": "touch ran", "env": {"A": "\0"}}),
            "env",
        ),
        ("read", json!({"path": "a\0b"}), "path"),
        ("read", json!({"path": ""}), "path"),
        ("read", json!({"path": "f", "offset": 0}), "offset"),
        ("read", json!({"path": "f", "offset": -1}), "offset"),
        ("read", json!({"path": "f", "limit": 0}), "limit"),
        ("read", json!({"path": "f", "limit": 1.5}), "limit"),
        ("write", json!({"path": "ran"}), "content"),
        (
            "write",
            json!({"path": "ran", "file_path": "ran", "content": "x"}),
            "path",
        ),
        (
            "edit",
            json!({"path": "f", "old_string": "", "new_string": "x"}),
            "old_string",
        ),
        (
            "edit",
            json!({"path": "f", "old_string": "a", "new_string": "x", "expected_sha256": "12"}),
            "expected_sha256",
        ),
        ("glob", json!({"pattern": ""}), "pattern"),
        ("grep", json!({"pattern": "x", "context": 21}), "context"),
        ("list_files", json!({"path": 7}), "path"),
    ] {
        let reply = client.call(name, input.clone()).await;
        assert_eq!(
            (reply.outcome(), reply.code()),
            ("failed", "invalid_input"),
            "{name} {input}"
        );
        assert!(
            reply.data().contains(word) && reply.data().contains(name),
            "{name} {input}: {}",
            reply.data()
        );
    }
    client.check_alive().await;
    assert!(
        !executor.workspace().join("ran").exists(),
        "a refused call ran"
    );
}

#[tokio::test]
async fn an_unknown_tool_is_told_the_known_ones() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let reply = client.call("bsah", json!({"command": "touch ran"})).await;
    reply.check_failed("unknown_tool", &["bsah", "bash", "list_files"]);
    let reply = client.call("computer_observe", json!({})).await;
    assert_eq!(
        reply.check_failed("tool_not_offered", &[]).data(),
        "Tool not offered: computer_observe"
    );
    client.check_alive().await;
}

#[tokio::test]
async fn unknown_members_nulls_and_aliases_are_taken() {
    let executor = start_executor();
    executor.write_file("f.txt", "needle\n");
    let mut client = executor.connect().await;
    let text = r#"{"id":9,"method":"tool.call","params":{"session_id":"s-1","tool_call_id":"x","name":"bash",
        "input":{"command":"echo ok","cwd":null,"timeout_ms":null,"env":null,"shiny":{"new":true}},
        "deadline_ms":null,"permission":null,"else":[]}}"#;
    client.send_text(text).await;
    assert_eq!(client.expect_result("x").await.data(), "ok\nexit_code: 0");
    client
        .call("read", json!({"file_path": "f.txt"}))
        .await
        .check_done();
    let found = client
        .call("grep", json!({"pattern": "needle", "include": "*.txt"}))
        .await;
    assert_eq!(found.data().trim_end(), "f.txt:1:needle");
}

#[tokio::test]
async fn a_message_beyond_the_limit_is_refused_with_1009_and_the_session_goes_on() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let pending = client
        .send_call("bash", json!({"command": "sleep 1; echo X"}))
        .await;
    // The executor closes while this is still being sent, so the send itself may fail.
    let big = format!(
        r#"{{"method":"tool.call","params":{{"filler":"{}"}}}}"#,
        "x".repeat(17 << 20)
    );
    let sent = tokio::spawn(async move {
        client.send_text(big).await;
        client
    });
    let mut client = tokio::time::timeout(SOON, sent).await.unwrap().unwrap();
    assert_eq!(client.expect_close().await, 1009);
    drop(client);
    let mut again = executor.connect().await;
    // The first call on the new connection takes the session up again.
    again
        .send_call_as("again", "bash", json!({"command": "echo alive"}), json!({}))
        .await;
    assert_eq!(
        again.expect_result("again").await.data(),
        "alive\nexit_code: 0"
    );
    assert_eq!(
        again.expect_result(&pending).await.data(),
        "X\nexit_code: 0"
    );
}

#[tokio::test]
async fn a_message_of_many_fragments_beyond_the_limit_is_refused_with_1009() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let part = vec![b'x'; 64 * 1024];
    let (mut kind, mut sent) = (Data::Text, 0);
    while sent <= 16 << 20 {
        client
            .send_message(Message::Frame(Frame::message(
                part.clone(),
                OpCode::Data(kind),
                false,
            )))
            .await;
        (kind, sent) = (Data::Continue, sent + part.len());
    }
    assert_eq!(client.expect_close().await, 1009);
}

#[tokio::test]
async fn a_message_at_the_limit_works() {
    let executor = start_executor_with(Options {
        configure: Box::new(|config| config.limits.max_inbound_bytes = 1 << 20),
        ..Options::default()
    });
    let mut client = executor.connect().await;
    let frame = |filler: usize| {
        json!({"method": "tool.call", "params": {"session_id": "s-1", "tool_call_id": "big", "name": "write",
            "input": {"path": "f", "content": "x".repeat(filler)}}})
        .to_string()
    };
    let overhead = frame(0).len();
    client.send_text(frame((1 << 20) - overhead)).await;
    client.expect_result("big").await.check_done();
    assert_eq!(executor.read_file("f").len(), (1 << 20) - overhead);
    client.send_text(frame((1 << 20) - overhead + 1)).await;
    assert_eq!(client.expect_close().await, 1009);
}

#[tokio::test]
async fn text_that_is_not_utf_8_closes_with_1007() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let frame = Frame::message(&b"\xff\xfe{}"[..], OpCode::Data(Data::Text), true);
    client.send_message(Message::Frame(frame)).await;
    assert_eq!(client.expect_close().await, 1007);
    executor.connect().await.check_alive().await;
}
