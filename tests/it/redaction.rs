//! Nothing that a peer, a command or the environment says reaches the log, at any level and in either form.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bma_executor::config::Settings;
use bma_executor::dispatch::{Run, ToolInput, Toolbox};
use bma_executor::process::unmarked;
use bma_executor::telemetry::{LogFormat, LogLevel, init};
use bma_executor::tools::Ctx;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use crate::support::SOON;
use crate::support::binary::{command, start_scratch, start_server_by};
use crate::support::client::{Client, open};
use crate::support::executor::{Options, start_executor_with};
use crate::support::watched::{Log, exchange};

/// What every secret of these tests holds.
const SECRET: &str = "pl4nted";

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

#[track_caller]
fn check(log: &str, what: &str) {
    let leaks: Vec<_> = log
        .lines()
        .filter(|line| line.to_lowercase().contains(SECRET))
        .collect();
    assert!(leaks.is_empty(), "{what}: {leaks:#?}");
}

/// A secret of its own name, so that a leak tells where it came from.
fn secret(name: &str) -> String {
    format!("{SECRET}-{name}")
}

/// Calls and messages with a secret in every place that there is.
async fn plant(mut client: Client, address: SocketAddr, key: &str) {
    let params = json!({"session_id": secret_free("s-1"), "env": {"V": secret("session-env")}, "workspace": "."});
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
        plain
            .iter()
            .for_each(|text| drop(exchange(address, text.as_bytes())))
    })
    .await
    .unwrap();
    // A frame that is none, behind a good handshake.
    let mut bad = Client::connect(address, Some(key)).await;
    bad.send_message(Message::text("x".repeat(17 << 20) + SECRET))
        .await;
    bad.expect_close().await;
}

/// Ids are in the log; this one is no secret.
fn secret_free(id: &str) -> &str {
    id
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

#[test]
fn the_log_of_connect_holds_nothing_of_the_url_or_of_the_harness() {
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = refusing.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (number, stream) in refusing.incoming().enumerate() {
            let mut stream: TcpStream = stream.unwrap();
            let mut head = [0; 2048];
            let _read = std::io::Read::read(&mut stream, &mut head);
            let body = secret("body");
            let _sent = match number % 3 {
                0 => write!(
                    stream,
                    "HTTP/1.1 500 {body}\r\n{body}: {body}\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                ),
                1 => write!(stream, "{body} is no HTTP\r\n\r\n"),
                _ => write!(
                    stream,
                    "HTTP/1.1 403 No\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                ),
            };
        }
    });
    for (level, format) in [
        ("trace", "text"),
        ("trace", "json"),
        ("info", "text"),
        ("info", "json"),
    ] {
        let scratch = start_scratch();
        let mut dialler = command(scratch.path());
        let dialler = dialler
            .args(["connect", "--log-level", level, "--log-format", format])
            .env(
                "BMA_HARNESS_URL",
                format!("ws://{0}:{0}@127.0.0.1:{port}/{0}?{0}={0}", secret("url")),
            )
            .env("BMA_ENVIRONMENT_KEY", secret("environment-key"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = unmarked(|| dialler.spawn()).unwrap();
        let log = Log::of(child.stderr.take().unwrap());
        log.expect_line("refuses the credentials");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
        check(&log.text(), &format!("connect, {level}, {format}"));
    }
}

/// Panics with a secret, wherever it is called.
#[derive(Debug)]
struct Panicking;

impl Toolbox for Panicking {
    fn run(&self, _: Ctx, input: ToolInput) -> Run {
        Box::pin(async move { panic!("{} {input:?}", secret("panic")) })
    }
}

/// Set for the child that [`a_panic_is_logged_without_its_text`] starts, to the form of its log.
const CHILD: &str = "REDACTION_TEST_LOG";

#[tokio::test]
async fn a_panic_is_logged_without_its_text() {
    let Some(format) = std::env::var_os(CHILD) else {
        for format in ["text", "json"] {
            let mut again = Command::new(std::env::current_exe().unwrap());
            let again = again
                .args([
                    "--exact",
                    "redaction::a_panic_is_logged_without_its_text",
                    "--nocapture",
                ])
                .env(CHILD, format)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let ended = unmarked(|| again.spawn())
                .unwrap()
                .wait_with_output()
                .unwrap();
            let log = String::from_utf8(ended.stderr).unwrap();
            assert!(ended.status.success(), "{log}");
            check(&log, format);
            assert!(
                log.contains("a panic was caught") && log.contains("internal"),
                "{log}"
            );
        }
        return;
    };
    let format = if format == "json" {
        LogFormat::Json
    } else {
        LogFormat::Text
    };
    let _log = init(format, LogLevel::Trace).unwrap();
    let executor = start_executor_with(Options {
        toolbox: Arc::new(Panicking),
        ..Options::default()
    });
    let mut client = executor.connect().await;
    let failed = client.call("read", json!({"path": secret("path")})).await;
    failed.check_failed("internal", &[]);
}

#[test]
fn what_is_shown_for_debugging_holds_no_key() {
    let settings = Settings {
        harness_url: Some(String::new()),
        ..Settings::default()
    };
    assert!(format!("{settings:?}").contains("harness_url"));
    let access = bma_executor::net::Access {
        key: Some(secret("key")),
        allowed_origins: Vec::new(),
    };
    let target = bma_executor::net::Target::new(
        &format!("ws://{0}:{0}@127.0.0.1:1/{0}?{0}", secret("url")),
        Some(secret("key-of-the-target")),
        None,
    )
    .unwrap();
    check(
        &format!("{access:?}{target:?}{}", target.shown()),
        "debug forms",
    );
}
