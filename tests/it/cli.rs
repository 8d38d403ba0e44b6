//! The real binary: what it prints, its exit statuses, its signals.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::support::binary::{Printed, command, run, start_scratch, start_server, start_server_in};
use crate::support::client::open;
use crate::support::contract::check_frame;
use crate::support::processes::{expect_none, running_with};
use crate::support::{Client, SOON};

/// Runs the binary over an empty workspace.
fn run_fresh(arguments: &[&str]) -> Printed {
    let scratch = start_scratch();
    run(command(scratch.path()).args(arguments))
}

#[test]
fn call_prints_block_0_and_tells_by_its_exit_status_what_came() {
    let server = start_server(&[]);
    let done = server.call(&["bash", r#"{"command":"echo hi"}"#]);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "hi\nexit_code: 0\n"),
        "{}",
        done.stderr
    );
    let error = server.call(&["read", r#"{"path":"missing"}"#]);
    assert_eq!(error.code, 1);
    assert!(error.stdout.contains("missing"), "{}", error.stdout);
    let refused = server.call(&["bash", "{}"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stdout.contains("command"), "{}", refused.stdout);
    let finished = server.call(&["bash", r#"{"command":"exit 3"}"#]);
    assert_eq!(
        (finished.code, finished.stdout.as_str()),
        (0, "exit_code: 3\n")
    );
}

#[test]
fn call_without_an_executor_is_status_3_and_wrong_usage_is_2() {
    let scratch = start_scratch();
    let call = |arguments: &[&str]| run(command(scratch.path()).arg("call").args(arguments));
    let nobody = call(&["bash", "{}", "--url", "ws://127.0.0.1:1"]);
    assert_eq!(nobody.code, 3);
    assert!(nobody.stderr.contains("127.0.0.1:1"), "{}", nobody.stderr);
    for arguments in [
        &["bash", "not json"][..],
        &["bash", "[]"],
        &[],
        &["bash", "{}", "--deadline-ms", "0"],
        &["bash", "{}", "--session", ""],
        &["bash", "{}", "--no-such-flag"],
    ] {
        let wrong = call(arguments);
        assert_eq!(wrong.code, 2, "{arguments:?}: {}", wrong.stderr);
        assert!(!wrong.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn call_says_what_is_wrong_with_its_own_input() {
    let server = start_server(&[]);
    let twice = server.call(&["bash", r#"{"command":"touch ran","command":"touch ran"}"#]);
    assert!(
        twice.code == 2 && twice.stderr.contains("twice"),
        "{}",
        twice.stderr
    );
    assert!(!server.workspace().join("ran").exists());
    let missing = server.call(&["bash", "{}", "--key-file", "/no/such/key"]);
    assert!(
        missing.code == 2 && missing.stderr.contains("/no/such/key"),
        "{}",
        missing.stderr
    );
    let input = server.scratch().join("input.json");
    std::fs::write(
        &input,
        format!(r#"{{"path":"f","content":"{}"}}"#, "x".repeat(17 << 20)),
    )
    .unwrap();
    let mut large = command(server.scratch());
    let large = large
        .args(["call", "write", "-", "--url", server.url()])
        .stdin(std::fs::File::open(&input).unwrap());
    let large = run(large);
    assert!(
        large.code == 3 && large.stderr.contains("16777216"),
        "{}",
        large.stderr
    );
    std::fs::write(&input, b"{\"command\":\"\xff\"}").unwrap();
    let mut invalid = command(server.scratch());
    let invalid = invalid
        .args(["call", "bash", "-", "--url", server.url()])
        .stdin(std::fs::File::open(&input).unwrap());
    assert_eq!(run(invalid).code, 2);
    for id in [["--id", "one"]; 2] {
        server.call(&[
            "bash",
            r#"{"command":"echo one"}"#,
            "--session",
            "s",
            id[0],
            id[1],
        ]);
    }
    let taken = server.call(&[
        "bash",
        r#"{"command":"echo two"}"#,
        "--session",
        "s",
        "--id",
        "one",
    ]);
    assert!(
        taken.code == 3 && taken.stderr.contains("tool_call_id"),
        "{}",
        taken.stderr
    );
}

#[test]
fn output_that_nobody_reads_changes_no_exit_status() {
    let server = start_server(&[]);
    let shell = |line: &str| {
        let mut shell = std::process::Command::new("bash");
        let shell = shell
            .args(["-c", line])
            .env_clear()
            .current_dir(server.workspace());
        let shell = shell
            .env("B", env!("CARGO_BIN_EXE_bma-executor"))
            .env("U", server.url());
        run(shell.env("XDG_STATE_HOME", server.scratch().join("state")))
    };
    let piped =
        shell("$B call bash '{\"command\":\"seq 100000\"}' --url $U | true; echo ${PIPESTATUS[0]}");
    assert_eq!(piped.stdout, "0\n", "{}", piped.stderr);
    for full in [
        "describe",
        "call --list --url $U",
        "serve --no-key --listen 127.0.0.1:0",
        "demo",
    ] {
        let full = shell(&format!("$B {full} >/dev/full"));
        assert!(
            full.code == 1 && full.stderr.contains("standard output"),
            "{}: {}",
            full.code,
            full.stderr
        );
    }
}

#[test]
fn an_interrupted_call_is_cancelled_and_its_result_shown() {
    let server = start_server(&[]);
    let mut call = command(server.scratch());
    let call = call.args([
        "call",
        "bash",
        r#"{"command":"echo begun; sleep 7432"}"#,
        "--url",
        server.url(),
    ]);
    let call = call
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let child = bma_executor::process::unmarked(|| call.spawn()).unwrap();
    let until = Instant::now() + SOON;
    // Not the `call` itself, whose arguments hold the command too.
    let running = || -> Vec<String> {
        let found = running_with("sleep 7432").into_iter();
        found.filter(|line| !line.contains(" call ")).collect()
    };
    while running().is_empty() {
        assert!(Instant::now() < until, "the command never ran");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(rustix::process::Pid::from_child(&child), Signal::INT).unwrap();
    let printed = Printed::from(child.wait_with_output().unwrap());
    assert!(
        printed.code == 1 && printed.stdout.contains("begun"),
        "{}: {}",
        printed.code,
        printed.stderr
    );
    expect_none("sleep 7432", SOON, running);
}

#[test]
fn call_passes_deadline_session_and_piped_input_on() {
    let server = start_server(&[]);
    let begun = Instant::now();
    let late = server.call(&[
        "bash",
        r#"{"command":"echo begun; sleep 7431"}"#,
        "--deadline-ms",
        "700",
    ]);
    assert_eq!(late.code, 1);
    assert!(
        late.stdout.contains("begun") && late.stderr.contains("deadline"),
        "{}{}",
        late.stdout,
        late.stderr
    );
    assert!(begun.elapsed() < SOON);
    let mut piped = command(server.scratch());
    let mut piped = piped.args(["call", "bash", "-", "--url", server.url()]);
    let input = server.scratch().join("input.json");
    std::fs::write(&input, r#"{"command":"echo piped"}"#).unwrap();
    piped = piped.stdin(std::fs::File::open(&input).unwrap());
    assert_eq!(run(piped).stdout, "piped\nexit_code: 0\n");
    // The same id in the same session is the same call: it does not run again.
    for _ in 0..2 {
        let same = server.call(&[
            "bash",
            r#"{"command":"echo run >>f; cat f"}"#,
            "--session",
            "s",
            "--id",
            "c",
        ]);
        assert_eq!(same.stdout, "run\nexit_code: 0\n", "{}", same.stderr);
    }
}

#[test]
fn call_list_shows_the_tools() {
    let server = start_server(&["--disable", "grep", "--read-only"]);
    let list = server.call(&["--list"]);
    assert_eq!(list.code, 0);
    for (tool, available) in [
        ("bash", true),
        ("read", true),
        ("grep", false),
        ("write", false),
        ("computer_observe", false),
    ] {
        let line = list
            .stdout
            .lines()
            .find(|line| line.starts_with(tool))
            .unwrap_or_else(|| panic!("{tool}: {}", list.stdout));
        assert_eq!(!line.contains("not available"), available, "{line}");
    }
}

#[test]
fn the_key_is_made_on_the_first_start_private_and_kept() {
    let server = start_server(&[]);
    let state = server.scratch().join("state/bma-executor");
    let directory = std::fs::read_dir(&state)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let key = directory.join("key");
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&key), mode(&directory)), (0o600, 0o700));
    let text = std::fs::read_to_string(&key).unwrap();
    assert_eq!(text.trim().len(), 43);
    assert!(!directory.starts_with(server.workspace()));
    let mut wrong = command(server.scratch());
    let wrong = wrong
        .args(["call", "bash", "{}", "--url", server.url()])
        .env("BMA_ENVIRONMENT_KEY", "a-wrong-key-for-this");
    let wrong = run(wrong);
    assert_eq!(wrong.code, 3);
    assert!(wrong.stderr.contains("401"), "{}", wrong.stderr);
    let command_line = std::fs::read(format!(
        "/proc/{}/cmdline",
        server.daemon().as_raw_nonzero()
    ))
    .unwrap();
    assert!(!String::from_utf8_lossy(&command_line).contains(text.trim()));
}

#[test]
fn two_daemons_do_not_share_a_state_directory() {
    let server = start_server(&[]);
    let second = run(command(server.scratch()).args(["serve", "--listen", "127.0.0.1:0"]));
    assert_eq!(second.code, 1);
    assert!(
        second.stderr.contains("another executor") && second.stderr.contains("--state-dir"),
        "{}",
        second.stderr
    );
}

#[tokio::test]
async fn no_key_lets_everybody_in_on_loopback_only() {
    let server = start_server(&["--no-key"]);
    let address = server.url().strip_prefix("ws://").unwrap().parse().unwrap();
    open(address, None, &[]).await.unwrap();
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let refused = run_fresh(&["serve", "--no-key", "--listen", listen]);
        assert_eq!(refused.code, 2);
        assert!(
            refused.stderr.contains("no_key") && refused.stderr.contains("loopback"),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn wrong_settings_are_named_with_value_and_expectation() {
    let scratch = start_scratch();
    let file = scratch.path().join("config.toml");
    let file = file.to_str().unwrap();
    for (content, words) in [
        ("colour = true", &["line 1", "colour"][..]),
        ("\nread_only = \"yes\"", &["line 2", "yes"]),
        ("kill_grace = \"2\"", &["kill_grace", "500ms"]),
        ("kill_grace = \"2h\"", &["kill_grace", "2h", "1m"]),
        ("disable = [\"bsah\"]", &["bsah", "bash"]),
        (
            "max_concurrent_calls = 0",
            &["max_concurrent_calls", "0", "10000"],
        ),
        ("listen = \"nowhere\"", &["line 1", "listen"]),
        ("= 1", &["line 1"]),
    ] {
        std::fs::write(file, content).unwrap();
        let wrong = run(command(scratch.path()).args(["describe", "--config", file]));
        assert_eq!(wrong.code, 2, "{content}: {}", wrong.stderr);
        for word in words {
            assert!(
                wrong.stderr.contains(word),
                "{content}: {word} is not in {}",
                wrong.stderr
            );
        }
        assert_eq!(
            wrong.stderr.trim_end().lines().count(),
            1,
            "one sentence: {}",
            wrong.stderr
        );
    }
    for (arguments, words) in [
        (
            &["serve", "--bash-timeout", "5"][..],
            &["--bash-timeout", "5", "500ms"][..],
        ),
        (
            &["serve", "--disable", "nope"],
            &["--disable", "nope", "list_files"],
        ),
        (&["serve", "--listen", "x"], &["--listen", "x"]),
        (&["serve", "--config", "/no/such/file"], &["/no/such/file"]),
        (
            &["serve", "--key-file", "k", "--no-key"],
            &["--key-file", "--no-key"],
        ),
    ] {
        let wrong = run_fresh(arguments);
        assert_eq!(wrong.code, 2, "{arguments:?}: {}", wrong.stderr);
        for word in words {
            assert!(
                wrong.stderr.contains(word),
                "{arguments:?}: {word} is not in {}",
                wrong.stderr
            );
        }
    }
    let missing = run_fresh(&["serve", "--workspace", "/no/such/workspace"]);
    assert_eq!(missing.code, 2);
    assert!(
        missing.stderr.contains("/no/such/workspace"),
        "{}",
        missing.stderr
    );
}

#[test]
fn flags_are_stronger_than_variables_and_these_than_the_file() {
    let scratch = start_scratch();
    let file = scratch.path().join("config.toml");
    std::fs::write(&file, "max_concurrent_calls = 11\n").unwrap();
    let limit = |flags: &[&str], variable: Option<&str>| -> Value {
        let mut command = command(scratch.path());
        command
            .args(["describe", "--config", file.to_str().unwrap()])
            .args(flags);
        command.envs(variable.map(|value| ("BMA_EXECUTOR_MAX_CONCURRENT_CALLS", value)));
        let printed = run(&mut command);
        assert_eq!(printed.code, 0, "{}", printed.stderr);
        let described: Value = serde_json::from_str(&printed.stdout).unwrap();
        described["params"]["environment"]["limits"]["max_concurrent_calls"].clone()
    };
    assert_eq!(limit(&[], None), 11);
    assert_eq!(limit(&[], Some("12")), 12);
    assert_eq!(limit(&["--max-concurrent-calls", "13"], Some("12")), 13);
}

#[test]
fn describe_prints_what_the_contract_asks_for() {
    let described = run_fresh(&["describe", "--disable", "bash", "--read-only"]);
    assert_eq!(described.code, 0, "{}", described.stderr);
    let frame: Value = serde_json::from_str(&described.stdout).unwrap();
    check_frame(&frame);
    assert_eq!(frame["method"], "executor.capabilities.update");
    assert_eq!(
        frame["params"]["capabilities"],
        json!({"shell": false, "files": true, "computer": false})
    );
    assert_eq!(frame["params"]["environment"]["read_only"], true);
}

#[test]
fn the_advertised_schemas_are_the_files_of_the_contract() {
    let described = run_fresh(&["describe"]);
    let frame: Value = serde_json::from_str(&described.stdout).unwrap();
    for tool in frame["params"]["tools"].as_array().unwrap() {
        let file = format!(
            "executor/tools/{}.input.schema.json",
            tool["name"].as_str().unwrap()
        );
        let contract =
            crate::support::contract::read_json(&crate::support::contract::root().join(file));
        assert_eq!(tool["input_schema"], contract);
    }
}

#[test]
fn the_demo_runs_every_tool_and_ends_well() {
    let demo = run_fresh(&["demo"]);
    assert_eq!(demo.code, 0, "{}{}", demo.stdout, demo.stderr);
    for word in [
        "bash",
        "read",
        "write",
        "edit",
        "glob",
        "grep",
        "list_files",
        "cancel",
        "every call came out as it should",
    ] {
        assert!(
            demo.stdout.contains(word),
            "{word} is not in {}",
            demo.stdout
        );
    }
    assert!(
        !demo.stdout.contains('\u{1b}'),
        "no colour outside a terminal"
    );
    assert_eq!(running_with("sleep 60"), Vec::<String>::new());
}

#[tokio::test]
async fn a_hangup_reads_the_configuration_again_and_a_wrong_one_changes_nothing() {
    let scratch = start_scratch();
    let file = scratch.path().join("config.toml");
    std::fs::write(&file, "").unwrap();
    let path = file.to_str().unwrap().to_owned();
    let mut server = start_server_in(scratch, &["--no-key", "--config", &path]);
    let mut client = Client::connect(
        server.url().strip_prefix("ws://").unwrap().parse().unwrap(),
        None,
    )
    .await;
    std::fs::write(&file, "disable = [\"glob\"]\n").unwrap();
    server.send_signal(Signal::HUP);
    let update = client.expect("executor.capabilities.update").await;
    let glob = update["tools"]
        .as_array()
        .unwrap()
        .iter()
        .find(|tool| tool["name"] == "glob")
        .unwrap();
    assert_eq!(glob["available"], false);
    client
        .call("glob", json!({"pattern": "*"}))
        .await
        .check_failed("tool_not_offered", &["glob"]);
    std::fs::write(&file, "disable = [\"bsah\"]\n").unwrap();
    server.send_signal(Signal::HUP);
    std::fs::write(&file, "").unwrap();
    client.call("glob", json!({"pattern": "**"})).await;
    server.send_signal(Signal::TERM);
    let (code, log) = server.expect_end(Duration::from_secs(6));
    assert_eq!(code, Some(0), "{log}");
}

/// A server with two commands running, one of which has left its session.
async fn with_two_sleeps(markers: [&str; 2]) -> (crate::support::binary::Server, Client) {
    let server = start_server(&["--no-key"]);
    let mut client = Client::connect(
        server.url().strip_prefix("ws://").unwrap().parse().unwrap(),
        None,
    )
    .await;
    for command in [
        format!("echo started; {}", markers[0]),
        format!("echo started; setsid -w {}", markers[1]),
    ] {
        client.send_call("bash", json!({"command": command})).await;
        client.expect("tool.progress").await;
    }
    (server, client)
}

#[tokio::test]
async fn a_signal_to_stop_ends_calls_with_results_then_closes_then_exits_with_0() {
    for (signal, markers) in [
        (Signal::TERM, ["sleep 7441", "sleep 7442"]),
        (Signal::INT, ["sleep 7443", "sleep 7444"]),
    ] {
        let (mut server, mut client) = with_two_sleeps(markers).await;
        server.send_signal(signal);
        client.expect("executor.drain").await;
        for id in ["c-1", "c-2"] {
            let reply = client.expect_result(id).await;
            assert_eq!(
                (reply.outcome(), reply.code()),
                ("cancelled", "shutting_down")
            );
        }
        assert_eq!(client.expect_close().await, 1001);
        let (code, log) = server.expect_end(Duration::from_secs(5));
        assert_eq!(code, Some(0), "{log}");
        for marker in markers {
            assert_eq!(running_with(marker), Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn a_second_signal_skips_the_wait() {
    let (mut server, mut client) = with_two_sleeps(["sleep 7445", "sleep 7446"]).await;
    server.send_signal(Signal::TERM);
    client.expect("executor.drain").await;
    let begun = Instant::now();
    server.send_signal(Signal::TERM);
    client.expect_result("c-1").await;
    assert!(
        begun.elapsed() < Duration::from_millis(1_500),
        "it took {:?}",
        begun.elapsed()
    );
    assert_eq!(server.expect_end(Duration::from_secs(5)).0, Some(0));
}

#[tokio::test]
async fn a_killed_daemon_leaves_no_command_behind() {
    let markers = ["sleep 7447", "sleep 7448"];
    let (mut server, _client) = with_two_sleeps(markers).await;
    kill_process(server.daemon(), Signal::KILL).unwrap();
    for marker in markers {
        expect_none(marker, Duration::from_secs(5), || running_with(marker));
    }
    assert_eq!(server.expect_end(Duration::from_secs(5)).0, Some(137));
}

#[test]
fn the_log_names_calls_by_id_and_no_command_path_or_content() {
    let mut server = start_server(&["--log-format", "json"]);
    server.call(&[
        "bash",
        r#"{"command":"echo top-secret-1","env":{"K":"top-secret-2"}}"#,
        "--id",
        "the-call",
    ]);
    server.call(&[
        "write",
        r#"{"path":"top-secret-3","content":"top-secret-4"}"#,
    ]);
    server.call(&["top-secret-5", "{}"]);
    server.send_signal(Signal::TERM);
    let (_, log) = server.expect_end(Duration::from_secs(6));
    assert!(!log.contains("top-secret"), "{log}");
    let line = log
        .lines()
        .find(|line| line.contains("the-call"))
        .unwrap_or_else(|| panic!("no line names the call: {log}"));
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        (&line["tool"], &line["outcome"]),
        (&json!("bash"), &json!("succeeded"))
    );
}
