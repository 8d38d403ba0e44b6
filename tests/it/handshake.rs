//! Who gets in, and what both sides say first.

use std::time::Duration;

use serde_json::json;
use tokio_tungstenite::tungstenite::Error;

use crate::support::client::open;
use crate::support::executor::{KEY, Options};
use crate::support::{Client, Executor, start_executor, start_executor_with};

/// Opens a socket that must be refused, and returns the HTTP status.
async fn refused(executor: &Executor, key: Option<&str>, headers: &[(&'static str, &str)]) -> u16 {
    match open(executor.address, key, headers).await {
        Err(Error::Http(response)) => response.status().as_u16(),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[tokio::test]
async fn hello_comes_first_and_the_offer_right_after() {
    let executor = start_executor();
    let client = executor.connect().await;
    let hello = &client.hello["params"];
    assert_eq!(
        hello["protocol_versions"],
        json!(["bma.executor.v1.1", "bma.executor.v1"])
    );
    assert_eq!(hello["executor"]["name"], "bma-executor");
    assert_eq!(hello["limits"]["max_concurrent_calls"], 256);
    let tools = client.update["params"]["tools"].as_array().unwrap();
    let available: Vec<_> = tools
        .iter()
        .filter(|tool| tool["available"] == true)
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        available,
        [
            "bash",
            "read",
            "write",
            "edit",
            "glob",
            "grep",
            "list_files"
        ]
    );
    assert_eq!(
        client.update["params"]["environment"]["workspace"],
        executor.workspace().to_str().unwrap()
    );
}

#[tokio::test]
async fn each_start_has_another_instance_id() {
    let (one, two) = (start_executor(), start_executor());
    let id = |client: Client| client.hello["params"]["instance_id"].clone();
    let first = id(one.connect().await);
    assert_eq!(first, id(one.connect().await));
    assert_ne!(first, id(two.connect().await));
}

#[tokio::test]
async fn a_wrong_or_missing_key_is_refused_with_401() {
    let executor = start_executor();
    for key in [
        None,
        Some(""),
        Some("a-key-for-tests-onl"),
        Some("a-key-for-tests-only2"),
        Some("A-KEY-FOR-TESTS-ONLY"),
    ] {
        assert_eq!(refused(&executor, key, &[]).await, 401, "{key:?}");
    }
    for header in [
        "Basic a-key-for-tests-only",
        "a-key-for-tests-only",
        "Bearer",
        "Bearer a b",
    ] {
        assert_eq!(
            refused(&executor, None, &[("authorization", header)]).await,
            401,
            "{header}"
        );
    }
    open(
        executor.address,
        None,
        &[("authorization", "bearer a-key-for-tests-only")],
    )
    .await
    .unwrap();
    executor.connect().await.check_alive().await;
}

#[tokio::test]
async fn a_web_page_is_refused_unless_its_origin_is_allowed() {
    let allowed = "https://app.example";
    let executor = start_executor_with(Options {
        configure: Box::new(move |config| config.allowed_origins = vec![allowed.to_owned()]),
        ..Options::default()
    });
    for origin in [
        "https://evil.example",
        "null",
        "",
        "https://app.example.evil.example",
        "http://app.example",
    ] {
        assert_eq!(
            refused(&executor, Some(KEY), &[("origin", origin)]).await,
            403,
            "{origin:?}"
        );
    }
    // The key comes second, so that a page learns nothing about it.
    assert_eq!(
        refused(&executor, None, &[("origin", "https://evil.example")]).await,
        403
    );
    open(executor.address, Some(KEY), &[("origin", allowed)])
        .await
        .unwrap();
}

#[tokio::test]
async fn only_an_offered_subprotocol_is_selected_and_the_newest_of_them() {
    let executor = start_executor();
    for (offered, selected) in [
        (
            "bma.executor.v1.1, bma.executor.v1",
            Some("bma.executor.v1.1"),
        ),
        ("bma.executor.v1", Some("bma.executor.v1")),
        (
            "bma.executor.v1,bma.executor.v1.1",
            Some("bma.executor.v1.1"),
        ),
    ] {
        let response =
            raw_handshake(&executor, &format!("Sec-WebSocket-Protocol: {offered}\r\n")).await;
        let line = response
            .lines()
            .find_map(|line| line.strip_prefix("sec-websocket-protocol: "));
        assert_eq!(line, selected, "offered {offered}: {response}");
    }
    for offered in ["", "Sec-WebSocket-Protocol: something.else\r\n"] {
        let response = raw_handshake(&executor, offered).await;
        assert!(response.starts_with("HTTP/1.1 101"), "{response}");
        assert!(!response.contains("sec-websocket-protocol"), "{response}");
    }
}

/// Sends a handshake by hand and returns the response's head in lower case, but for its first line.
async fn raw_handshake(executor: &Executor, headers: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(executor.address)
        .await
        .unwrap();
    let request = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer {KEY}\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let (first, rest) = head.split_once("\r\n").unwrap();
    format!("{first}\n{}", rest.to_lowercase().replace("\r\n", "\n"))
}

/// Fails unless calls work and no message comes that v1 does not know.
async fn check_served_as_v1(client: &mut Client) {
    client.check_alive().await;
    let frames = client.drain(Duration::from_millis(200)).await;
    assert!(
        frames
            .iter()
            .all(|frame| frame["method"] != "session.opened"),
        "v1 does not know it: {frames:#?}"
    );
}

#[tokio::test]
async fn a_harness_without_a_welcome_is_served_as_v1() {
    let executor = start_executor();
    let mut client = executor.connect_v1().await;
    check_served_as_v1(&mut client).await;
}

#[tokio::test]
async fn a_welcome_for_v1_is_served_as_v1_even_where_the_subprotocol_said_otherwise() {
    let executor = start_executor();
    let mut client = executor.connect_v1().await;
    client
        .send(
            "harness.welcome",
            json!({"protocol_version": "bma.executor.v1"}),
        )
        .await;
    check_served_as_v1(&mut client).await;
}

#[tokio::test]
async fn a_welcome_for_an_unknown_version_is_told_what_is_served_and_closed_with_4406() {
    let executor = start_executor();
    let mut client = executor.connect_v1().await;
    client
        .send(
            "harness.welcome",
            json!({"protocol_version": "bma.executor.v2"}),
        )
        .await;
    let error = client.expect("protocol.error").await;
    assert_eq!(error["code"], "unsupported_version");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("bma.executor.v1.1") && message.contains("bma.executor.v1"),
        "{message}"
    );
    assert_eq!(client.expect_close().await, 4406);
}

#[tokio::test]
async fn a_tool_that_is_switched_off_is_announced_with_its_reason_and_not_run() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    client.check_alive().await;
    let policy = bma_executor::dispatch::ToolPolicy {
        disabled: [bma_executor::dispatch::Tool::Grep].into(),
        read_only: true,
    };
    executor.offers.set(&policy);
    let update = client.expect("executor.capabilities.update").await;
    for (name, available) in [
        ("grep", false),
        ("write", false),
        ("edit", false),
        ("read", true),
        ("bash", true),
    ] {
        let tool = update["tools"]
            .as_array()
            .unwrap()
            .iter()
            .find(|tool| tool["name"] == name)
            .unwrap();
        assert_eq!(tool["available"], available, "{name}");
        assert_eq!(tool.get("reason").is_some(), !available, "{name}");
    }
    assert_eq!(update["environment"]["read_only"], true);
    let refused = client.call("grep", json!({"pattern": "x"})).await;
    assert_eq!(
        refused.check_failed("tool_not_offered", &[]).data(),
        "Tool not offered: grep"
    );
    client
        .call("write", json!({"path": "f", "content": "x"}))
        .await
        .check_failed("tool_not_offered", &["write"]);
    assert!(!executor.workspace().join("f").exists());
    client.drain(Duration::from_millis(100)).await;
    executor.offers.set(&policy);
    let frames = client.drain(Duration::from_millis(200)).await;
    assert!(
        frames.is_empty(),
        "nothing changed, so nothing is announced: {frames:#?}"
    );
}

#[tokio::test]
async fn silent_diallers_do_not_keep_others_out() {
    let executor = start_executor();
    let mut silent = Vec::new();
    // More than places for connections and for handshakes together.
    for _ in 0..400 {
        let stream = tokio::net::TcpStream::connect(executor.address).await;
        silent.push(stream.unwrap());
    }
    executor.connect().await.check_alive().await;
}
