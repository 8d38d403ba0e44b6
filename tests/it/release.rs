//! The binary that is handed out: static, small, and at work where there is nothing else.
//!
//! `RELEASE_BINARY` names it (`deploy/release` builds one); without it these say that they did not run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bma_executor::process::unmarked;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

use crate::support::SOON;
use crate::support::binary::{Printed, run};
use crate::support::client::accept_executor;

/// Largest binary that is handed out.
const MOST_BYTES: u64 = 12_000_000;

fn release_binary() -> Option<PathBuf> {
    let path = std::env::var_os("RELEASE_BINARY").map(PathBuf::from);
    if path.is_none() {
        println!("not run: RELEASE_BINARY names no binary; `deploy/release` builds one");
    }
    path
}

/// A directory with the binary and nothing to run it with.
fn lay_out(binary: &Path) -> TempDir {
    let root = TempDir::new().unwrap();
    for directory in ["proc", "dev", "ws", "etc", "state"] {
        fs::create_dir(root.path().join(directory)).unwrap();
    }
    fs::copy(binary, root.path().join("bma-executor")).unwrap();
    fs::write(root.path().join("etc/hosts"), "127.0.0.1 harness.test\n").unwrap();
    root
}

/// The binary with a directory for its root, where process table and devices are the only things that are mounted.
fn command_in(root: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let line = "mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && exec chroot \"$0\" /bma-executor \"$@\"";
    command
        .args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            line,
        ])
        .arg(root.path())
        .args(arguments)
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .stdin(Stdio::null());
    command
}

/// Whether this machine lets a test have a root directory of its own.
fn can_have_a_root() -> bool {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let done = run(command.args(["--mount", "--pid", "--fork", "true"]));
    if done.code != 0 {
        println!(
            "not run: no root directory of its own can be had: {}",
            done.stderr
        );
    }
    done.code == 0
}

#[test]
fn the_release_is_small_and_needs_no_library() {
    let Some(binary) = release_binary() else {
        return;
    };
    let bytes = fs::metadata(&binary).unwrap().len();
    assert!(
        bytes <= MOST_BYTES,
        "it has {bytes} bytes, more than {MOST_BYTES}"
    );
    println!("{bytes} bytes");
    if !can_have_a_root() {
        return;
    }
    let root = lay_out(&binary);
    let run_in = |arguments: &[&str]| -> Printed { run(&mut command_in(&root, arguments)) };
    let version = run_in(&["--version"]);
    assert_eq!(version.code, 0, "{}", version.stderr);
    assert!(
        version.stdout.contains(env!("CARGO_PKG_VERSION")),
        "{}",
        version.stdout
    );
    let offered = run_in(&["describe", "--workspace", "/ws"]);
    assert_eq!(offered.code, 0, "{}", offered.stderr);
    let offered: serde_json::Value = serde_json::from_str(&offered.stdout).unwrap();
    let tools = offered["params"]["tools"]
        .as_array()
        .or_else(|| offered["tools"].as_array());
    let missing: Vec<_> = tools
        .unwrap_or_else(|| panic!("{offered:#}"))
        .iter()
        .filter(|tool| tool["available"] == false)
        .map(|tool| tool["name"].as_str().unwrap())
        .filter(|name| !name.starts_with("computer_"))
        .collect();
    assert_eq!(missing, ["bash"], "only bash is missing");
}

#[tokio::test]
async fn names_are_resolved_and_tls_is_spoken_where_there_is_nothing_but_the_release() {
    let Some(binary) = release_binary() else {
        return;
    };
    if !can_have_a_root() {
        return;
    }
    let root = lay_out(&binary);
    let certified = rcgen::generate_simple_self_signed(["harness.test".to_owned()]).unwrap();
    // Where systems keep the authorities that they trust.
    let authorities = root.path().join("etc/ssl/certs");
    fs::create_dir_all(&authorities).unwrap();
    fs::write(
        authorities.join("ca-certificates.crt"),
        certified.cert.pem(),
    )
    .unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    fs::write(root.path().join("ws/file"), "from inside\n").unwrap();
    let url = format!(
        "wss://harness.test:{}",
        listener.local_addr().unwrap().port()
    );
    let arguments = ["connect", "--harness-url", &url, "--no-key"];
    let places = ["--workspace", "/ws", "--state-dir", "/state/own"];
    let mut command = command_in(&root, &[&arguments[..], &places[..]].concat());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut daemon = unmarked(|| command.spawn()).unwrap();
    let served = tokio::time::timeout(SOON, async {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = acceptor.accept(stream).await.expect("TLS is spoken");
        let mut client = accept_executor(stream, |_, response| Ok(response)).await;
        if client.0.is_err() {
            // It offers no subprotocol on the second attempt, which this harness takes.
            let (stream, _) = listener.accept().await.unwrap();
            let stream = acceptor.accept(stream).await.unwrap();
            client = accept_executor(stream, |_, response| Ok(response)).await;
        }
        let mut client = client.0.unwrap();
        client.send_welcome().await;
        let id = client.send_call("read", json!({"path": "file"})).await;
        let read = client.expect_result(&id).await;
        let id = client.send_call("bash", json!({"command": "true"})).await;
        (read, client.expect_result(&id).await)
    })
    .await;
    let was_ended = daemon.kill();
    let log = daemon.wait_with_output().unwrap().stderr;
    let log = String::from_utf8_lossy(&log);
    let (read, bash) = served.unwrap_or_else(|_| panic!("nobody came: {log}"));
    was_ended.unwrap();
    assert_eq!(read.data(), "from inside\n", "{log}");
    assert_eq!(bash.code(), "tool_not_offered", "{log}");
}
