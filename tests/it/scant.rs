//! Starts with next to nothing: no environment, a read-only root, a state directory that cannot be written.

use std::process::{Command, Stdio};

use bma_executor::process::unmarked;
use rustix::process::Signal;
use serde_json::json;

use crate::support::SOON;
use crate::support::binary::{BINARY, command, run, start_scratch, start_server_by};
use crate::support::wrapped::command_through;

#[tokio::test]
async fn an_empty_environment_is_enough() {
    let scratch = start_scratch();
    let mut serve = Command::new("/usr/bin/env");
    serve
        .args(["-i", BINARY, "serve", "--no-key", "--listen", "127.0.0.1:0"])
        .current_dir(scratch.path().join("ws"))
        .stdin(Stdio::null());
    let mut server = start_server_by(scratch, serve);
    let mut client = server.connect().await;
    let shown = client
        .bash(r#"echo "$PATH|$HOME|${LC_ALL:-${LANG:-$LC_CTYPE}}"; printf é"#)
        .await;
    let line = shown.check_done().data().lines().next().unwrap().to_owned();
    let parts: Vec<&str> = line.split('|').collect();
    assert!(
        parts[0].contains("/usr/bin") && parts[1].starts_with('/') && parts[2].contains("UTF-8"),
        "{line}"
    );
    client
        .call("write", json!({"path": "f", "content": "x"}))
        .await
        .check_done();
    server.send_signal(Signal::TERM);
    assert_eq!(server.expect_end(SOON).0, Some(0));
}

#[test]
fn without_a_home_the_one_of_the_user_data_base_is_taken_for_the_state() {
    let scratch = start_scratch();
    let mut config = Command::new(BINARY);
    let config = config
        .arg("config")
        .env_clear()
        .current_dir(scratch.path().join("ws"));
    let printed = run(config);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    assert!(
        printed.stdout.contains("/.local/state/bma-executor/"),
        "{}",
        printed.stdout
    );
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_written_is_an_error_where_the_key_would_be_there_and_else_none()
 {
    let scratch = start_scratch();
    let serve = |arguments: &[&str]| {
        let mut serve = command(scratch.path());
        serve
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--state-dir",
                "/proc/no/state",
            ])
            .args(arguments);
        serve
    };
    let refused = run(&mut serve(&[]));
    assert_eq!(
        (refused.code, refused.stdout.as_str()),
        (1, ""),
        "{}",
        refused.stderr
    );
    for text in [
        "/proc/no/state",
        "--state-dir",
        "BMA_ENVIRONMENT_KEY",
        "--key-file",
    ] {
        assert!(refused.stderr.contains(text), "{text}: {}", refused.stderr);
    }
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    // With a key from elsewhere it starts, and remembers calls in memory only.
    let mut with_key = serve(&[]);
    with_key.env("BMA_ENVIRONMENT_KEY", "a-key-from-elsewhere");
    let server = start_server_by(start_scratch(), with_key);
    let mut client =
        crate::support::Client::connect(server.address(), Some("a-key-from-elsewhere")).await;
    assert_eq!(client.update["params"]["environment"]["journal"], "memory");
    client.bash("true").await.check_done();
}

/// Whether a mount name space with a read-only root can be had.
fn can_mount(script: &str) -> bool {
    let mut unshare = Command::new("unshare");
    let unshare = unshare
        .args(["-m", "sh", "-c", script, "sh", "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let can = unmarked(|| unshare.spawn()).is_ok_and(|mut child| child.wait().unwrap().success());
    if !can {
        println!("not run: a root cannot be mounted read-only here");
    }
    can
}

#[tokio::test]
async fn on_a_read_only_root_it_reads_searches_and_runs_and_says_what_it_cannot() {
    // Every mount that can be is made read-only; what cannot be is the kernel's own.
    let script = "for m in $(awk '{print $2}' /proc/self/mounts); do mount -o remount,ro,bind \"$m\" 2>/dev/null; done; \
                  touch /tmp/probe-$$ 2>/dev/null && exit 1; exec \"$@\"";
    if !can_mount(script) {
        return;
    }
    let scratch = start_scratch();
    std::fs::write(scratch.path().join("ws/f"), "content\n").unwrap();
    let through = |arguments: &[&str]| {
        let mut command = command_through(
            "unshare",
            &["-m", "sh", "-c", script, "sh", BINARY],
            scratch.path(),
        );
        command.args(arguments);
        command
    };
    let keyless = run(&mut through(&["serve", "--listen", "127.0.0.1:0"]));
    assert_eq!(keyless.code, 1, "{}", keyless.stderr);
    assert!(
        keyless.stderr.contains("state directory") && keyless.stderr.contains("--state-dir"),
        "{}",
        keyless.stderr
    );
    let doctor = run(&mut through(&[
        "doctor",
        "--no-key",
        "--read-only",
        "--listen",
        "127.0.0.1:0",
    ]));
    assert_eq!(doctor.code, 0, "{}{}", doctor.stdout, doctor.stderr);
    let serve = through(&["serve", "--no-key", "--listen", "127.0.0.1:0"]);
    let server = start_server_by(scratch, serve);
    let mut client = server.connect().await;
    assert_eq!(
        client
            .call("read", json!({"path": "f"}))
            .await
            .check_done()
            .data(),
        "content\n"
    );
    client.bash("cat f; echo $((6 * 7))").await.check_done();
    client
        .call("grep", json!({"pattern": "cont"}))
        .await
        .check_done();
    client
        .call("write", json!({"path": "f", "content": "x"}))
        .await
        .check_tool_error(&["ead-only"]);
}
