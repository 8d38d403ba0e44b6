//! Nothing that a peer, a command or the environment says reaches the log, at any level and in either form.

use std::net::SocketAddr;

use rustix::process::Signal;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use crate::support::SOON;
use crate::support::binary::{command, start_scratch, start_server_by};
use crate::support::client::{Client, open};
use crate::support::watched::exchange;

/// What every secret of these tests holds.
const SECRET: &str = "pl4nted";

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Fails where a log holds a secret.
#[track_caller]
pub fn check(log: &str, what: &str) {
    let leaks: Vec<_> = log
        .lines()
        .filter(|line| line.to_lowercase().contains(SECRET))
        .collect();
    assert!(leaks.is_empty(), "{what}: {leaks:#?}");
}

/// A secret of its own name, so that a leak tells where it came from.
pub fn secret(name: &str) -> String {
    format!("{SECRET}-{name}")
}

/// Calls and messages with a secret in every place that there is.
async fn plant(mut client: Client, address: SocketAddr, key: &str) {
    let params =
        json!({"session_id": "s-1", "env": {"V": secret("session-env")}, "workspace": "."});
    client.send("session.open", params).await;
    client.expect("session.opened").await;
    for (tool, input) in [
        (
            "bash",
            json!({"command": format!("echo {0}; echo {0} >&2; exit 3", secret("command")), "env": {"V": secret("call-env")}}),
        ),
        ("bash", json!({"command": "true", "cwd": secret("cwd")})),
        (
            "bash",
            json!({"command": "kill -9 $$", "env": {"=": secret("bad-name")}}),
        ),
        ("bash", json!({"command": secret("unknown-program")})),
        (
            "write",
            json!({"path": secret("path"), "content": secret("content")}),
        ),
        (
            "write",
            json!({"path": format!("{}/x", secret("path")), "content": secret("content")}),
        ),
        ("read", json!({"path": secret("path")})),
        ("read", json!({"path": format!("../{}", secret("outside"))})),
        (
            "edit",
            json!({"path": secret("path"), "old_string": secret("old"), "new_string": secret("new")}),
        ),
        (
            "grep",
            json!({"pattern": format!("({}", secret("pattern"))}),
        ),
        (
            "grep",
            json!({"pattern": SECRET, "glob": format!("{{{}", secret("glob"))}),
        ),
        ("glob", json!({"pattern": secret("glob")})),
        ("list_files", json!({"path": secret("list")})),
        ("read", json!({"path": 7, "no": secret("member")})),
        (&*secret("tool"), json!({"x": secret("input")})),
    ] {
        client.call(tool, input).await;
    }
    for further in [
        json!({"permission": {"decision": "deny", "reason": secret("reason")}}),
        json!({"permission": {"decision": "ask", "reason": secret("reason")}}),
        json!({"traceparent": secret("trace")}),
    ] {
        let id = client
            .send_call_with("list_files", json!({}), further)
            .await;
        client.expect_result(&id).await;
    }
    plant_messages(client).await;
    plant_handshakes(address, key).await;
}

/// Messages that are none, and a cancel and a close with words in them.
async fn plant_messages(mut client: Client) {
    let id = client
        .send_call(
            "bash",
            json!({"command": format!("sleep 7467 # {}", secret("slow"))}),
        )
        .await;
    client
        .send(
            "tool.cancel",
            json!({"session_id": "s-1", "tool_call_id": id, "reason": secret("cancel")}),
        )
        .await;
    client.expect_result(&id).await;
    for text in [
        secret("no-json"),
        format!("{{\"method\":\"{}\",\"params\":{{}}}}", secret("method")),
        format!(
            "{{\"method\":\"tool.call\",\"params\":{{\"session_id\":\"s-1\",\"{}\":1}}}}",
            secret("member")
        ),
        format!(
            "{{\"method\":\"session.open\",\"params\":{{\"session_id\":\"other\",\"workspace\":\"{}\"}}}}",
            secret("workspace")
        ),
        format!(
            "{{\"method\":\"session.open\",\"params\":{{\"session_id\":7,\"resume_token\":\"{}\"}}}}",
            secret("token")
        ),
    ] {
        client.send_text(text).await;
        client.expect("protocol.error").await;
    }
    client
        .send_message(Message::binary(secret("binary").into_bytes()))
        .await;
    client.expect("protocol.error").await;
    let frame = CloseFrame {
        code: 4001.into(),
        reason: secret("close").into(),
    };
    client.send_message(Message::Close(Some(frame))).await;
}

/// Requests with secrets in every part, a wrong key, and a message that is too large.
async fn plant_handshakes(address: SocketAddr, key: &str) {
    for (shown, headers) in [
        (Some(secret("wrong-key")), vec![]),
        (Some(key.to_owned()), vec![("origin", secret("origin"))]),
        (
            Some(key.to_owned()),
            vec![("sec-websocket-protocol", secret("protocol"))],
        ),
    ] {
        let headers: Vec<(&'static str, &str)> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let _refused = open(address, shown.as_deref(), &headers).await;
    }
    let plain = [
        format!(
            "GET /{0}?{0} HTTP/1.1\r\nHost: {0}\r\n{0}: {0}\r\n\r\n",
            secret("http")
        ),
        format!("{0} / HTTP/1.1\r\n\r\n", secret("verb")),
        format!("GET / HTTP/1.1\r\nBad Header {}\r\n\r\n", secret("header")),
        format!("{}\r\n\r\n", secret("garbage")),
    ];
    tokio::task::spawn_blocking(move || {
        for text in plain {
            exchange(address, text.as_bytes());
        }
    })
    .await
    .unwrap();
    // A frame that is none, behind a good handshake.
    let mut bad = Client::connect(address, Some(key)).await;
    bad.send_message(Message::text("x".repeat(17 << 20) + SECRET))
        .await;
    bad.expect_close().await;
}

#[tokio::test]
async fn the_log_of_serve_holds_no_secret_at_any_level() {
    let run = async |level: &str, format: &str| {
        let scratch = start_scratch();
        std::fs::write(
            scratch.path().join("home/.profile"),
            format!("echo {0}; export X={0}; exit 3\n", secret("profile")),
        )
        .unwrap();
        let key = secret("key-of-the-daemon");
        let mut serve = command(scratch.path());
        serve
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--admin-listen",
                "127.0.0.1:0",
                "--log-level",
                level,
                "--log-format",
                format,
            ])
            .env("BMA_ENVIRONMENT_KEY", &key)
            .env("OTHER", secret("daemon-env"));
        let mut server = start_server_by(scratch, serve);
        let log = server.take_log();
        let client = Client::connect(server.address(), Some(&key)).await;
        plant(client, server.address(), &key).await;
        if !matches!(level, "off" | "error" | "warn") {
            let admin = log.expect_admin();
            for text in [
                format!("GET /{0}?{0} HTTP/1.1\r\n{0}: {0}\r\n\r\n", secret("admin")),
                format!("{} \r\n\r\n", secret("admin-garbage")),
            ] {
                exchange(admin, text.as_bytes());
            }
        }
        server.send_signal(Signal::TERM);
        server.expect_end(SOON);
        let text = log.text();
        check(&text, &format!("serve, {level}, {format}"));
        text
    };
    for format in ["text", "json"] {
        for level in LEVELS {
            let text = run(level, format).await;
            let expected = match level {
                "off" => 0,
                "error" | "warn" => usize::from(level == "warn"),
                _ => 20,
            };
            let lines = text.lines().count();
            assert!(
                lines >= expected && (level != "off" || lines == 0),
                "{level}: {text}"
            );
        }
    }
}
