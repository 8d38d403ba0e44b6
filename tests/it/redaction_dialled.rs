//! Nothing of a URL, of a harness that is dialled, or of a panic reaches the log.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bma_executor::dispatch::{Run, ToolInput, Toolbox};
use bma_executor::process::unmarked;
use bma_executor::telemetry::{LogFormat, LogLevel, init};
use bma_executor::tools::Ctx;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::redaction::{check, secret};
use crate::support::binary::{command, start_scratch};
use crate::support::executor::{Options, start_executor_with};
use crate::support::watched::Log;

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
                    "redaction_dialled::a_panic_is_logged_without_its_text",
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
