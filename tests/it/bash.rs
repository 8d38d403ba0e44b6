//! `bash` through the socket: what block 0, notes and details say (cases BASH-10, BASH-15).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::binary::{BINARY, Server, start_scratch, start_server_by};
use crate::support::start_executor;
use crate::support::wrapped::command_through;

#[tokio::test]
async fn stdout_stderr_and_exit_code_each_start_on_their_own_line() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    for (command, data) in [
        ("true", "exit_code: 0"),
        ("echo hi", "hi\nexit_code: 0"),
        ("printf hi", "hi\nexit_code: 0"),
        ("echo out; echo err >&2; exit 3", "out\nerr\nexit_code: 3"),
        ("printf err >&2; printf out", "out\nerr\nexit_code: 0"),
        ("echo; echo >&2", "\n\nexit_code: 0"),
    ] {
        let reply = client.bash(command).await;
        assert_eq!(reply.check_done().data(), data, "{command}");
        assert_eq!(reply.details()["cause"], "exited", "{command}");
    }
}

#[tokio::test]
async fn a_non_zero_exit_is_a_finished_command() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    for code in [1, 2, 126, 255] {
        let reply = client.bash(&format!("exit {code}")).await;
        reply.check_done();
        assert_eq!(reply.details()["exit_code"], code);
        assert_eq!(reply.data(), format!("exit_code: {code}"));
    }
    let reply = client.bash("no-such-command-7").await;
    assert_eq!(reply.check_done().details()["exit_code"], 127);
    assert!(
        reply.data().contains("no-such-command-7"),
        "{}",
        reply.data()
    );
}

#[tokio::test]
async fn death_by_signal_is_an_error_that_keeps_the_output() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    for (number, name) in [
        (9, "SIGKILL"),
        (15, "SIGTERM"),
        (11, "SIGSEGV"),
        (6, "SIGABRT"),
    ] {
        let reply = client
            .bash(&format!("echo half; kill -{number} $$; sleep 5"))
            .await;
        reply.check_tool_error(&["half"]);
        assert_eq!(reply.data(), format!("half\nexit_code: {}", 128 + number));
        assert!(reply.notes().contains(name), "{}", reply.notes());
        assert_eq!(
            (&reply.details()["signal"], &reply.details()["exit_code"]),
            (&json!(name), &json!(null))
        );
        assert_eq!(reply.details()["cause"], "signalled");
    }
    let reply = client.bash("bash -c 'kill -9 $$'; exit 0").await;
    assert_eq!(reply.check_done().details()["exit_code"], 0);
    let reply = client.bash("bash -c 'kill -9 $$'").await;
    assert!(reply.data().ends_with("exit_code: 137"), "{}", reply.data());
}

#[tokio::test]
async fn odd_time_outs_are_refused_by_name_or_clamped_with_a_note() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let call = |id: &str, timeout: &str| {
        format!(
            r#"{{"method":"tool.call","params":{{"session_id":"s-1","tool_call_id":"{id}","name":"bash",
            "input":{{"command":"sleep 0.3; echo ok; touch ran-{id}","timeout_ms":{timeout}}}}}}}"#
        )
    };
    for (at, timeout) in [
        "0",
        "-1",
        "0.5",
        "\"1000\"",
        "true",
        "[]",
        "1.5",
        "-9223372036854775808",
    ]
    .iter()
    .enumerate()
    {
        let id = format!("bad{at}");
        client.send_text(call(&id, timeout)).await;
        client
            .expect_result(&id)
            .await
            .check_failed("invalid_input", &["timeout_ms"]);
        assert!(
            !executor.workspace().join(format!("ran-{id}")).exists(),
            "{timeout} ran"
        );
    }
    for (at, (timeout, clamped)) in [
        ("99999999000", true),
        ("9223372036854775808", true),
        ("18446744073709551616", true),
        ("null", false),
        ("5000", false),
    ]
    .iter()
    .enumerate()
    {
        let id = format!("good{at}");
        client.send_text(call(&id, timeout)).await;
        let reply = client.expect_result(&id).await;
        assert_eq!(reply.check_done().data(), "ok\nexit_code: 0", "{timeout}");
        assert_eq!(
            reply.notes().contains("3600000") || reply.notes().contains("3,600,000"),
            *clamped,
            "{timeout}: {}",
            reply.notes()
        );
    }
}

#[tokio::test]
async fn its_own_time_out_is_an_error_that_says_so_and_keeps_the_output() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    client.check_alive().await;
    let begun = Instant::now();
    let reply = client
        .call(
            "bash",
            json!({"command": "echo STEP-1; sleep 7421", "timeout_ms": 500}),
        )
        .await;
    assert!(
        begun.elapsed() >= Duration::from_millis(500) && begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
    reply.check_tool_error(&["STEP-1"]);
    assert!(reply.notes().contains("500"), "{}", reply.notes());
    assert_eq!(reply.details()["cause"], "timeout");
}

#[tokio::test]
async fn a_directory_that_cannot_be_entered_is_named_and_nothing_runs() {
    let executor = start_executor();
    executor.write_file("file.txt", "x");
    executor.write_file("sub/x", "x");
    let mut client = executor.connect().await;
    for cwd in ["none", "file.txt", "../..", "/etc"] {
        let reply = client
            .call("bash", json!({"command": "touch ran", "cwd": cwd}))
            .await;
        reply.check_tool_error(&[cwd]);
        assert!(
            !reply.data().contains("bash"),
            "the shell is not at fault: {}",
            reply.data()
        );
    }
    assert!(!executor.workspace().join("ran").exists());
    let absolute = executor.workspace().join("sub");
    for cwd in ["sub", "./sub/", absolute.to_str().unwrap()] {
        let reply = client
            .call("bash", json!({"command": "pwd", "cwd": cwd}))
            .await;
        assert_eq!(
            reply.data(),
            format!("{}\nexit_code: 0", absolute.display())
        );
    }
}

#[tokio::test]
async fn a_large_output_keeps_its_head_and_its_end_and_counts_what_is_missing() {
    let executor = start_executor();
    let mut client = executor.connect().await;
    let reply = client.bash("seq 1 200000; echo FINAL-MARKER; exit 3").await;
    let data = reply.check_done().data();
    assert!(
        data.starts_with("1\n2\n3\n") && data.ends_with("200000\nFINAL-MARKER\nexit_code: 3"),
        "head or end is lost"
    );
    assert!(data.len() <= 48 * 1024 + 200, "{} bytes", data.len());
    let details = reply.details();
    assert_eq!(details["stdout_bytes"], 1_288_908);
    let omitted = details["omitted_bytes"].as_u64().unwrap();
    let marker = format!("\n[... {omitted} bytes of stdout left out here ...]\n");
    let (head, rest) = data.split_once(&marker).expect("the gap states its size");
    let tail = rest.strip_suffix("exit_code: 3").unwrap();
    let numbers: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    let whole = numbers + "FINAL-MARKER\n";
    assert!(
        whole.starts_with(head) && whole.ends_with(tail),
        "what is kept is changed"
    );
    assert_eq!(head.len() as u64 + omitted + tail.len() as u64, 1_288_908);
    let path = details["output_paths"]["stdout"].as_str().unwrap();
    assert!(reply.notes().contains(path), "{}", reply.notes());
    assert_eq!(executor.read_file(path).len(), 1_288_908);
    client
        .call("grep", json!({"pattern": "FINAL-MARKER", "path": path}))
        .await
        .check_done();
}

/// Starts the binary from a shell that has run a command before.
fn start_server_after(command: &str) -> Server {
    let scratch = start_scratch();
    let script = format!("{command}; exec \"$0\" serve --no-key --listen 127.0.0.1:0");
    let serve = command_through("/bin/bash", &["-c", &script, BINARY], scratch.path());
    start_server_by(scratch, serve)
}

#[tokio::test]
async fn a_command_can_trap_what_the_executor_was_started_to_ignore() {
    let server = start_server_after("trap '' USR1 PIPE XFSZ");
    let mut client = server.connect().await;
    let reply = client
        .bash("for name in USR1 PIPE XFSZ; do trap \"echo $name\" $name; kill -s $name $$; done")
        .await;
    assert_eq!(reply.data(), "USR1\nPIPE\nXFSZ\nexit_code: 0");
}

#[tokio::test]
async fn as_many_commands_as_are_allowed_run_with_the_usual_number_of_descriptors() {
    let server = start_server_after("ulimit -Sn 1024");
    let mut client = server.connect().await;
    let mut sent = Vec::new();
    for _ in 0..240 {
        let input = json!({"command": "sleep 2"});
        sent.push(client.send_call("bash", input).await);
    }
    for id in sent {
        client.expect_result(&id).await.check_done();
    }
}

#[tokio::test]
async fn where_descriptors_run_out_a_command_has_run_or_is_said_not_to_have() {
    let server = start_server_after("ulimit -n 28");
    let mut client = server.connect().await;
    client.bash("true").await.check_done();
    let mut refused = 0;
    for round in 0..20 {
        let mut sent = Vec::new();
        for number in 0..8 {
            let file = format!("ran-{round}-{number}");
            let input = json!({"command": format!("echo x > {file}; sleep 0.05")});
            sent.push((client.send_call("bash", input).await, file));
        }
        for (id, file) in sent {
            let reply = client.expect_result(&id).await;
            let ran = server.workspace().join(file).exists();
            let says = !reply.data().contains("Nothing was run");
            assert_eq!(ran, says, "{:#}", reply.0);
            refused += usize::from(!ran);
        }
    }
    assert!(refused > 0, "there were descriptors enough");
    client.bash("true").await.check_done();
}
