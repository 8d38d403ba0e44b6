//! `connect`: the real binary dials a harness, and again after every kind of loss (cases WS-05, WS-12).

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bma_executor::process::unmarked;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderMap, StatusCode};

use crate::support::SOON;
use crate::support::binary::{command, run, start_scratch};
use crate::support::client::{Client, accept_executor};
use crate::support::processes::{expect_none, running_in};

const KEY: &str = "a-key-for-the-harness";

/// A harness that waits for executors.
pub(super) struct Harness {
    listener: TcpListener,
}

/// A running `connect`.
pub(super) struct Dialler {
    pub(super) child: Child,
    scratch: TempDir,
}

pub(super) async fn start_harness() -> Harness {
    Harness {
        listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
    }
}

impl Harness {
    pub(super) fn url(&self) -> String {
        format!(
            "ws://{}/executors?token=not-for-logs",
            self.listener.local_addr().unwrap()
        )
    }

    /// Waits for the next executor, answers its handshake by `answer`, and returns what it asked with.
    async fn expect_executor_by(
        &self,
        answer: impl Fn(&Request, Response) -> Result<Response, ErrorResponse>,
    ) -> (Result<Client, String>, HeaderMap) {
        let (stream, _) = tokio::time::timeout(2 * SOON, self.listener.accept())
            .await
            .expect("an executor dials")
            .unwrap();
        accept_executor(stream, answer).await
    }

    pub(super) async fn expect_executor(&self) -> Client {
        self.expect_executor_by(select).await.0.unwrap()
    }
}

/// Selects the newest protocol, as a harness does.
#[expect(clippy::unnecessary_wraps, reason = "the library's own callback type")]
fn select(_: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    response.headers_mut().insert(
        "sec-websocket-protocol",
        "bma.executor.v1.1".parse().unwrap(),
    );
    Ok(response)
}

pub(super) fn start_dialler(url: &str, further: &[&str]) -> Dialler {
    start_dialler_in(start_scratch(), url, further)
}

/// Starts one over the workspace of a scratch directory.
fn start_dialler_in(scratch: TempDir, url: &str, further: &[&str]) -> Dialler {
    let mut command: Command = command(scratch.path());
    let command = command
        .args(["connect", "--harness-url", url])
        .args(further)
        .env("BMA_ENVIRONMENT_KEY", KEY)
        .env("BMA_ENVIRONMENT_ID", "env-7")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Dialler {
        child: unmarked(|| command.spawn()).unwrap(),
        scratch,
    }
}

impl Dialler {
    /// Its workspace.
    pub(super) fn workspace(&self) -> std::path::PathBuf {
        self.scratch.path().join("ws").canonicalize().unwrap()
    }

    /// Starts it again over the same workspace, once it has ended.
    pub(super) fn start_again(mut self, url: &str) -> Self {
        self.child.wait().unwrap();
        let scratch = std::mem::replace(&mut self.scratch, start_scratch());
        start_dialler_in(scratch, url, &[])
    }

    /// Ends it by a signal; returns its exit status, what it printed and its log.
    pub(super) fn stop(mut self) -> (Option<i32>, String, String) {
        use std::io::Read as _;
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let status = self.child.wait().unwrap();
        let (mut stdout, mut log) = (String::new(), String::new());
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut stdout)
            .unwrap();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut log)
            .unwrap();
        (status.code(), stdout, log)
    }
}

impl Drop for Dialler {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
            self.child.wait().unwrap();
        }
        if !std::thread::panicking() {
            let workspace = self.scratch.path().to_owned();
            expect_none(
                "a process of the executor is",
                Duration::from_secs(5),
                || running_in(&workspace),
            );
        }
    }
}

#[tokio::test]
async fn the_executor_shows_its_key_and_environment_and_serves_calls() {
    let harness = start_harness().await;
    let dialler = start_dialler(&harness.url(), &[]);
    let (client, headers) = harness.expect_executor_by(select).await;
    let mut client = client.unwrap();
    assert_eq!(headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(headers["x-bma-environment-id"], "env-7");
    assert_eq!(
        headers["sec-websocket-protocol"],
        "bma.executor.v1.1, bma.executor.v1"
    );
    assert_eq!(client.hello["params"]["environment_id"], "env-7");
    assert_eq!(client.hello["params"]["resume"], json!([]));
    client.send_welcome().await;
    client.check_alive().await;
    let environment = client.bash("env").await;
    assert!(
        !environment.data().contains(KEY) && !environment.data().contains("BMA_"),
        "{}",
        environment.data()
    );
    let stopping = tokio::task::spawn_blocking(move || dialler.stop());
    client.expect("executor.drain").await;
    assert_eq!(client.expect_close().await, 1001);
    let (status, stdout, log) = stopping.await.unwrap();
    assert_eq!(status, Some(0), "{log}");
    assert_eq!(
        stdout,
        format!(
            "connected to ws://{}\n",
            harness.listener.local_addr().unwrap()
        )
    );
    assert!(!log.contains("not-for-logs") && !log.contains(KEY), "{log}");
}

#[tokio::test]
async fn a_harness_that_selects_no_subprotocol_is_served() {
    let harness = start_harness().await;
    let _dialler = start_dialler(&harness.url(), &[]);
    // The first attempt offers the protocols; the library fails where none is selected, so a second one offers none.
    let (first, _) = harness.expect_executor_by(|_, response| Ok(response)).await;
    let (second, headers) = harness.expect_executor_by(|_, response| Ok(response)).await;
    assert!(first.is_err() && !headers.contains_key("sec-websocket-protocol"));
    second.unwrap().check_alive().await;
}

#[tokio::test]
async fn a_call_outlives_a_cut_connection_and_its_result_comes_once_on_the_next() {
    let harness = start_harness().await;
    let dialler = start_dialler(&harness.url(), &[]);
    let mut first = harness.expect_executor().await;
    first.send_welcome().await;
    let running = first
        .send_call("bash", json!({"command": "sleep 2; echo X >>f; echo X"}))
        .await;
    first.expect("session.opened").await;
    first.cut();
    let mut second = harness.expect_executor().await;
    let resume = &second.hello["params"]["resume"];
    assert_eq!(
        resume,
        &json!([{"session_id": "s-1", "running": [running], "unacked": []}])
    );
    second.send_welcome().await;
    assert_eq!(
        second.expect_result(&running).await.data(),
        "X\nexit_code: 0"
    );
    assert_eq!(
        std::fs::read(dialler.scratch.path().join("ws/f")).unwrap(),
        b"X\n",
        "it ran once"
    );
    let rest = second.drain(Duration::from_millis(300)).await;
    assert!(
        rest.iter().all(|frame| frame["method"] != "tool.result"),
        "{rest:#?}"
    );
}

#[tokio::test]
async fn a_result_that_nobody_acknowledged_is_listed_and_sent_again() {
    let harness = start_harness().await;
    let _dialler = start_dialler(&harness.url(), &[]);
    let mut first = harness.expect_executor().await;
    first.send_welcome().await;
    let id = first
        .send_call("bash", json!({"command": "sleep 0.3; echo kept"}))
        .await;
    let result = |frame: &serde_json::Value| frame["method"] == "tool.result";
    first.expect_within("the result", SOON, result).await;
    first.cut();
    let mut second = harness.expect_executor().await;
    assert_eq!(second.hello["params"]["resume"][0]["unacked"], json!([id]));
    second.send_welcome().await;
    assert_eq!(second.expect_result(&id).await.data(), "kept\nexit_code: 0");
    second.cut();
    let third = harness.expect_executor().await;
    assert_eq!(third.hello["params"]["resume"][0]["unacked"], json!([]));
}

#[tokio::test]
async fn an_orderly_close_is_followed_by_another_dial() {
    let harness = start_harness().await;
    let _dialler = start_dialler(&harness.url(), &[]);
    for code in [1000, 1001, 1012] {
        let mut client = harness.expect_executor().await;
        client.send_welcome().await;
        client.check_alive().await;
        let begun = Instant::now();
        client.close(code).await;
        drop(client);
        let next = harness.expect_executor().await;
        assert!(
            begun.elapsed() < Duration::from_secs(3),
            "{code}: the next dial took {:?}",
            begun.elapsed()
        );
        drop(next);
        // That one was not established, which makes the following pause longer, but not long.
    }
}

/// Counts the dials within a time, each answered by `answer`.
async fn count_dials(harness: &Harness, within: Duration, status: Option<StatusCode>) -> usize {
    let until = tokio::time::Instant::now() + within;
    let mut dials = 0;
    while let Ok(accepted) = tokio::time::timeout_at(until, harness.listener.accept()).await {
        dials += 1;
        let (stream, _) = accepted.unwrap();
        if let Some(status) = status {
            let refuse = move |_: &Request, _: Response| {
                let mut response = ErrorResponse::new(None);
                *response.status_mut() = status;
                Err(response)
            };
            let (refused, _) = accept_executor(stream, refuse).await;
            assert!(refused.is_err());
        }
    }
    dials
}

#[tokio::test]
async fn refused_credentials_are_not_hammered() {
    for status in [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN] {
        let harness = start_harness().await;
        let dialler = start_dialler(&harness.url(), &[]);
        assert_eq!(
            count_dials(&harness, Duration::from_secs(4), Some(status)).await,
            1
        );
        let (_, _, log) = dialler.stop();
        assert!(
            log.contains("ERROR") && log.contains("credentials"),
            "{log}"
        );
    }
}

#[tokio::test]
async fn a_harness_that_says_unwanted_or_replaced_is_left_alone() {
    for code in [1008, 4409] {
        let harness = start_harness().await;
        let _dialler = start_dialler(&harness.url(), &[]);
        let mut client = harness.expect_executor().await;
        client.send_welcome().await;
        client.check_alive().await;
        client.close(code).await;
        assert_eq!(
            count_dials(&harness, Duration::from_secs(4), None).await,
            0,
            "{code}"
        );
    }
}

#[tokio::test]
async fn a_server_that_accepts_and_closes_at_once_is_dialled_ever_more_rarely() {
    let harness = start_harness().await;
    let _dialler = start_dialler(&harness.url(), &[]);
    let dials = count_dials(&harness, Duration::from_secs(6), None).await;
    assert!((2..=20).contains(&dials), "{dials} dials within 6 s");
}

#[tokio::test]
async fn tls_is_spoken_with_a_named_authority_and_refused_without() {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let scratch = TempDir::new().unwrap();
    let ca = scratch.path().join("ca.pem");
    std::fs::write(&ca, certified.cert.pem()).unwrap();
    let key = tokio_rustls::rustls::pki_types::PrivateKeyDer::try_from(
        certified.signing_key.serialize_der(),
    )
    .unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = tokio_rustls::rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("wss://localhost:{}", listener.local_addr().unwrap().port());

    let strict = start_dialler(&url, &[]);
    let (stream, _) = tokio::time::timeout(SOON, listener.accept())
        .await
        .unwrap()
        .unwrap();
    assert!(
        acceptor.accept(stream).await.is_err(),
        "an unknown authority was trusted"
    );
    drop(strict);

    let _dialler = start_dialler(&url, &["--ca-file", ca.to_str().unwrap()]);
    let trusted = async {
        loop {
            // An attempt of the first executor may still have been waiting.
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                return stream;
            }
        }
    };
    let stream = tokio::time::timeout(SOON, trusted)
        .await
        .expect("the authority is trusted");
    let (client, _) = accept_executor(stream, select).await;
    let mut client = client.unwrap();
    client.send_welcome().await;
    client.check_alive().await;
}

#[test]
fn what_cannot_be_dialled_is_wrong_usage() {
    let scratch = start_scratch();
    for (url, word) in [
        ("http://127.0.0.1:1", "ws://"),
        ("nonsense", "ws://"),
        ("ws://192.0.2.1:1", "--allow-plaintext"),
    ] {
        let wrong = run(command(scratch.path())
            .args(["connect", "--harness-url", url])
            .env("BMA_ENVIRONMENT_KEY", KEY));
        assert_eq!(wrong.code, 2, "{url}: {}", wrong.stderr);
        assert!(wrong.stderr.contains(word), "{url}: {}", wrong.stderr);
    }
    let keyless =
        run(command(scratch.path()).args(["connect", "--harness-url", "ws://127.0.0.1:1"]));
    assert!(
        keyless.code == 2 && keyless.stderr.contains("BMA_ENVIRONMENT_KEY"),
        "{}",
        keyless.stderr
    );
    let homeless = run(command(scratch.path()).arg("connect"));
    assert!(
        homeless.code == 2 && homeless.stderr.contains("--harness-url"),
        "{}",
        homeless.stderr
    );
}
