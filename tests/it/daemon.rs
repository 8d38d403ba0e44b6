//! The real binary and the processes of its commands: as PID 1, from a terminal, with descriptors of its parent, and at its
//! own end (cases BASH-07, BASH-09, BASH-18).

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::support::binary::{Server, start_scratch, start_server, start_server_by};
use crate::support::processes::{Process, expect_none, processes, running_with};
use crate::support::wrapped::{command_through, start_first_server, start_server_at_a_terminal};
use crate::support::{Client, SOON};

/// The processes below a server's guardian, without its daemon.
fn left_of(server: &Server) -> Vec<Process> {
    let number = |pid: rustix::process::Pid| pid.as_raw_nonzero().get().cast_unsigned();
    let (daemon, guardian) = (number(server.daemon()), number(server.guardian()));
    let all = processes();
    let below = |process: &Process| {
        let mut ppid = process.ppid;
        while ppid != guardian && ppid != daemon {
            match all.iter().find(|parent| parent.pid == ppid) {
                Some(parent) => ppid = parent.ppid,
                None => return false,
            }
        }
        process.pid != daemon
    };
    all.iter()
        .filter(|process| below(process))
        .cloned()
        .collect()
}

#[tokio::test]
async fn no_zombie_is_left_below_pid_1() {
    let Some(server) = start_first_server() else {
        return;
    };
    let mut client = server.connect().await;
    for _ in 0..200 {
        client.bash("(sleep 0.2 &) ; :").await.check_done();
    }
    for _ in 0..50 {
        let id = client
            .send_call("bash", json!({"command": "sleep 7310"}))
            .await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        client.send_cancel(&id).await;
        assert_eq!(client.expect_result(&id).await.outcome(), "cancelled");
    }
    expect_none("a process below PID 1 is", Duration::from_secs(2), || {
        left_of(&server)
            .iter()
            .map(|process| format!("{process:?}"))
            .collect()
    });
    // The session, which sees the namespace's own table, agrees.
    let reply = client.bash("ps -eo stat= | grep -c ^Z").await;
    assert_eq!(reply.data(), "0\nexit_code: 1");
}

#[tokio::test]
async fn pid_1_passes_signals_and_exit_codes_on() {
    let Some(mut server) = start_first_server() else {
        return;
    };
    let mut client = server.connect().await;
    for code in [0, 3, 127] {
        let reply = client
            .bash(&format!("(sleep 0.01 &); bash -c 'exit {code}'"))
            .await;
        assert_eq!(reply.details()["exit_code"], code, "{:#}", reply.0);
    }
    assert_eq!(client.bash("echo $PPID").await.data(), "2\nexit_code: 0");
    let id = client
        .send_call("bash", json!({"command": "echo x; setsid -w sleep 7311"}))
        .await;
    client.expect("tool.progress").await;
    server.send_signal(Signal::TERM);
    assert_eq!(client.expect_result(&id).await.code(), "shutting_down");
    assert_eq!(client.expect_close().await, 1001);
    let (code, log) = server.expect_end(Duration::from_secs(5));
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test]
async fn a_command_finds_no_terminal_and_no_input_though_the_daemon_was_started_at_one() {
    let Some(server) = start_server_at_a_terminal() else {
        return;
    };
    let mut client = server.connect().await;
    client.check_alive().await;
    for (command, data) in [
        ("cat; echo rc=$?", "rc=0\nexit_code: 0"),
        ("read x; echo rc=$?", "rc=1\nexit_code: 0"),
        (
            "(read x </dev/tty) 2>/dev/null; echo rc=$?",
            "rc=1\nexit_code: 0",
        ),
        (
            "(echo seen >/dev/tty) 2>/dev/null; echo rc=$?",
            "rc=1\nexit_code: 0",
        ),
        (
            "setsid -w bash -c 'echo seen >/dev/tty' 2>/dev/null; echo rc=$?",
            "rc=1\nexit_code: 0",
        ),
        (
            "tty; ps -o tty= -p $$ | tr -d ' '",
            "not a tty\n?\nexit_code: 0",
        ),
    ] {
        let begun = Instant::now();
        let reply = client.bash(command).await;
        assert_eq!(reply.data(), data, "{command}");
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "{command}: {:?}",
            begun.elapsed()
        );
    }
    let begun = Instant::now();
    let reply = client
        .bash(
            "command -v git || exit 128; git -c credential.helper= ls-remote https://127.0.0.1:1/x",
        )
        .await;
    assert_eq!(reply.details()["exit_code"], 128, "{:#}", reply.0);
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    let seen = std::fs::read_to_string(server.scratch().join("terminal")).unwrap();
    let lines: Vec<&str> = seen
        .lines()
        .filter(|line| !line.starts_with("Script "))
        .collect();
    assert_eq!(
        lines,
        [format!("listening on {}", server.url())],
        "on the terminal"
    );
}

#[tokio::test]
async fn descriptors_of_whoever_started_the_daemon_reach_no_command() {
    let scratch = start_scratch();
    std::fs::write(scratch.path().join("secret"), "of the parent").unwrap();
    let secret = scratch.path().join("secret");
    let line = format!(
        "exec 7<{0} 9>>{0} 200<{0}; exec {1} serve --no-key --listen 127.0.0.1:0",
        secret.display(),
        env!("CARGO_BIN_EXE_bma-executor")
    );
    let command = command_through("/bin/bash", &["-c", &line], scratch.path());
    let server = start_server_by(scratch, command);
    let mut client = server.connect().await;
    for command in ["ls /proc/self/fd", "echo a; ls /proc/self/fd | tail -n +1"] {
        let reply = client.bash(command).await;
        // The last one is the listing's own.
        assert!(
            reply.data().ends_with("0\n1\n2\n3\nexit_code: 0"),
            "{}",
            reply.data()
        );
    }
    // Neither while others run and end.
    let ids = [7, 8, 9]
        .map(|_| json!({"command": "sleep 0.1; ls /proc/self/fd; yes | head -c 300000 >&2"}));
    let mut sent = Vec::new();
    for input in ids {
        sent.push(client.send_call("bash", input).await);
    }
    for id in sent {
        let reply = client.expect_result(&id).await;
        assert!(reply.data().starts_with("0\n1\n2\n3\n"), "{}", reply.data());
    }
    let long = format!("ls /proc/self/fd #{}", "x".repeat(300_000));
    assert_eq!(client.bash(&long).await.data(), "0\n1\n2\n3\nexit_code: 0");
}

/// Starts one of each kind of command that may outlive its daemon, all of them `sleep`.
async fn start_stubborn(sleep: &str) -> (Server, Client) {
    let server = start_server(&["--no-key"]);
    let mut client = server.connect().await;
    let left = format!("{sleep} & setsid -f {sleep}; echo left");
    client.bash(&left).await.check_done();
    for command in [
        sleep.to_owned(),
        format!("setsid -w {sleep}"),
        format!("(setsid env -i /bin/{sleep} &); {sleep}"),
        format!("trap '' TERM INT HUP; {sleep} & while :; do wait; done"),
    ] {
        let command = format!("echo started; {command}");
        client.send_call("bash", json!({"command": command})).await;
        client.expect("tool.progress").await;
    }
    let until = Instant::now() + SOON;
    // The shells' own lines hold the text too.
    let running = || {
        processes()
            .iter()
            .filter(|process| process.line.trim_start_matches("/bin/").starts_with(sleep))
            .count()
    };
    while running() < 7 {
        assert!(Instant::now() < until, "only {} run", running());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (server, client)
}

#[tokio::test]
async fn a_stop_gives_every_call_one_result_and_ends_the_stubborn_and_the_left_behind() {
    for (signal, number) in [(Signal::TERM, 1), (Signal::INT, 2)] {
        let sleep = format!("sleep 7313.{number}{}", std::process::id());
        let (mut server, mut client) = start_stubborn(&sleep).await;
        let begun = Instant::now();
        server.send_signal(signal);
        let mut results = Vec::new();
        for _ in 0..4 {
            let (id, reply) = client.expect_any_result(SOON).await;
            assert_eq!(
                (reply.outcome(), reply.code()),
                ("cancelled", "shutting_down"),
                "{:#}",
                reply.0
            );
            assert_eq!(
                reply.data().lines().next(),
                Some("started"),
                "{:#}",
                reply.0
            );
            results.push(id);
        }
        results.sort();
        assert_eq!(results, ["c-2", "c-3", "c-4", "c-5"]);
        assert_eq!(client.expect_close().await, 1001);
        let (code, log) = server.expect_end(Duration::from_secs(5).saturating_sub(begun.elapsed()));
        assert_eq!(code, Some(0), "{log}");
        assert_eq!(running_with(&sleep), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_killed_daemon_leaves_nothing_of_what_it_ran_after_five_seconds() {
    let sleep = format!("sleep 7314.{}", std::process::id());
    let (mut server, _client) = start_stubborn(&sleep).await;
    kill_process(server.daemon(), Signal::KILL).unwrap();
    let begun = Instant::now();
    assert_eq!(server.expect_end(Duration::from_secs(5)).0, Some(137));
    expect_none(
        "a command is",
        Duration::from_secs(5).saturating_sub(begun.elapsed()),
        || running_with(&sleep),
    );
}

#[tokio::test]
async fn a_killed_guardian_makes_the_daemon_stop_in_order() {
    let sleep = format!("sleep 7315.{}", std::process::id());
    let (mut server, mut client) = start_stubborn(&sleep).await;
    kill_process(server.guardian(), Signal::KILL).unwrap();
    for _ in 0..4 {
        let (_, reply) = client.expect_any_result(SOON).await;
        assert_eq!(reply.code(), "shutting_down", "{:#}", reply.0);
    }
    assert_eq!(client.expect_close().await, 1001);
    expect_none("a command is", Duration::from_secs(5), || {
        running_with(&sleep)
    });
    server.expect_end(Duration::from_secs(5));
}

#[tokio::test]
async fn a_log_that_nobody_reads_holds_up_no_call_and_no_stop() {
    // Each call writes a line of more than 100 bytes; a pipe holds 64 KiB.
    let mut server = start_server(&["--no-key"]);
    let mut client = server.connect().await;
    for _ in 0..900 {
        client.call("list_files", json!({})).await.check_done();
    }
    server.send_signal(Signal::TERM);
    assert_eq!(client.expect_close().await, 1001);
    expect_none("the daemon is", Duration::from_secs(5), || {
        let daemon = server.daemon().as_raw_nonzero().get().cast_unsigned();
        let found = processes()
            .into_iter()
            .filter(|process| process.pid == daemon);
        found.map(|process| process.line).collect()
    });
    let (code, log) = server.expect_end(Duration::from_secs(5));
    assert_eq!(code, Some(0));
    assert!(
        log.len() < 128 * 1024 && log.contains("call ended"),
        "{log:.1000}"
    );
}
