//! What commands see of the daemon's environment, and what start-up files make of it (cases ENV-01, ENV-03).

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::binary::{start_scratch, start_server_by, start_server_in};
use crate::support::processes::{expect_none, running_with};
use crate::support::wrapped::{command_through, ordinary_command, start_ordinary_server};
use crate::support::{Client, SOON};

/// The key of the daemon under test; nobody else has it.
fn own_key() -> String {
    format!("tok-SECRET-1-{}", std::process::id())
}

#[tokio::test]
async fn the_daemon_s_key_is_nowhere_that_a_command_of_the_same_user_can_look() {
    let key = own_key();
    let scratch = start_scratch();
    let Some(mut command) = ordinary_command(&scratch) else {
        return;
    };
    command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env("BMA_ENVIRONMENT_KEY", &key);
    let server = start_server_by(scratch, command);
    let mut client = Client::connect(server.address(), Some(&key)).await;
    client.send_welcome().await;
    let half = "tok-SECRET";
    for command in [
        "env".to_owned(),
        "cat /proc/self/environ".to_owned(),
        "cat /proc/$PPID/environ /proc/$PPID/cmdline".to_owned(),
        "cat /proc/1/task/*/environ /proc/$PPID/task/*/environ; ls -l /proc/$PPID/fd /proc/$PPID/cwd /proc/$PPID/exe".to_owned(),
        "g=$(cut -d' ' -f4 /proc/$PPID/stat); cat /proc/$g/environ /proc/$g/cmdline; ls /proc/$g/fd; head -c 1 /proc/$g/mem".to_owned(),
        // The searching command must not hold what it searches for.
        "grep -az 'tok[-]SECRET' /proc/[0-9]*/environ /proc/[0-9]*/cmdline".to_owned(),
        "cat /proc/$PPID/maps /proc/$PPID/auxv; head -c 1 /proc/$PPID/mem".to_owned(),
    ] {
        let reply = client.bash(&command).await;
        assert!(!reply.0.to_string().contains(half), "{command} shows {:#}", reply.0);
        assert!(!reply.data().contains("BMA_"), "{command} shows {:#}", reply.0);
    }
    let reply = client.bash("cat /proc/$PPID/environ").await;
    assert_eq!(reply.details()["exit_code"], 1, "{:#}", reply.0);
}

#[tokio::test]
async fn a_call_s_variables_are_in_its_environment_and_in_no_command_line() {
    let Some(server) = start_ordinary_server(&[]) else {
        return;
    };
    let mut client = server.connect().await;
    let secret = format!("val-SECRET-2-{}", std::process::id());
    let input = json!({"command": "echo \"$K\"; exec sleep 3", "env": {"K": secret}});
    let holder = client.send_call("bash", input).await;
    client.expect("tool.progress").await;
    // The search goes by the pattern's two halves: it would find its own command line otherwise. What ends while it
    // looks is no finding.
    let search = format!(
        "s=val; grep -alz \"$s-SECRET-2-{}\" /proc/[0-9]*/cmdline 2>/dev/null; echo rc=$?",
        std::process::id()
    );
    let reply = client.bash(&search).await;
    // 1: nothing was found; 2: nothing was found and something was not readable.
    assert!(
        ["rc=1\nexit_code: 0", "rc=2\nexit_code: 0"].contains(&reply.data()),
        "{:#}",
        reply.0
    );
    assert_eq!(running_with(&secret), Vec::<String>::new());
    assert_eq!(
        client.bash("echo \"[$K]\"").await.data(),
        "[]\nexit_code: 0"
    );
    let reply = client.expect_result(&holder).await;
    assert_eq!(reply.data(), format!("{secret}\nexit_code: 0"));
}

#[tokio::test]
async fn an_empty_environment_is_completed() {
    let scratch = start_scratch();
    let mut command = command_through(env!("CARGO_BIN_EXE_bma-executor"), &[], scratch.path());
    command
        .env_clear()
        .args(["serve", "--no-key", "--listen", "127.0.0.1:0"])
        .arg("--state-dir")
        .arg(scratch.path().join("state"));
    let server = start_server_by(scratch, command);
    let mut client = server.connect().await;
    let reply = client
        .bash("command -v ls; printf '%s\\n' \"$PATH\" \"$HOME\"")
        .await;
    let lines: Vec<&str> = reply.check_done().data().lines().collect();
    assert!(lines[0].ends_with("/ls"), "{lines:?}");
    let path: Vec<&str> = lines[1].split(':').collect();
    for part in ["/usr/local/bin", "/usr/bin", "/bin"] {
        assert!(path.contains(&part), "{part} is not in {path:?}");
    }
    let database = client
        .bash("getent passwd \"$(id -u)\" | cut -d: -f6")
        .await;
    assert_eq!(database.data().lines().next(), Some(lines[2]));
    let reply = client
        .bash("[ -w ~ ] || exit 9; touch ~/.x-$$ && rm ~/.x-$$")
        .await;
    assert!(
        [0, 9]
            .map(|code| json!(code))
            .contains(&reply.details()["exit_code"]),
        "{:#}",
        reply.0
    );
    let reply = client
        .bash("locale charmap 2>/dev/null || echo UTF-8; x=é; echo ${#x}")
        .await;
    assert_eq!(reply.data(), "UTF-8\n1\nexit_code: 0");
    let reply = client
        .bash("command -v python3 >/dev/null || { echo é; exit; }; python3 -c \"print('\\u00e9')\"")
        .await;
    assert_eq!(reply.data(), "é\nexit_code: 0");
    // What the daemon and its guardian have for themselves.
    let reply = client
        .bash("printenv GLIBC_TUNABLES BMA_EXECUTOR_GUARDIAN || echo none")
        .await;
    assert_eq!(reply.data(), "none\nexit_code: 0");
}

#[tokio::test]
async fn a_path_that_the_daemon_was_given_is_kept() {
    let scratch = start_scratch();
    let mut command = command_through(env!("CARGO_BIN_EXE_bma-executor"), &[], scratch.path());
    command
        .args(["serve", "--no-key", "--listen", "127.0.0.1:0"])
        .env("PATH", "/odd/bin:/usr/bin:/bin")
        .env("LC_ALL", "C");
    let server = start_server_by(scratch, command);
    let mut client = server.connect().await;
    let reply = client.bash("echo \"$PATH\"; echo \"$LC_ALL\"").await;
    let lines: Vec<&str> = reply.data().lines().collect();
    for part in ["/odd/bin", "/usr/bin", "/bin"] {
        assert!(
            lines[0].split(':').any(|found| found == part),
            "{part} is not in {}",
            lines[0]
        );
    }
    assert_eq!(lines[1], "C");
}

/// Starts a server whose user has a start-up file.
fn start_server_with_profile(profile: &str) -> crate::support::binary::Server {
    let scratch = start_scratch();
    std::fs::write(scratch.path().join("home/.bash_profile"), profile).unwrap();
    start_server_in(scratch, &["--no-key"])
}

#[tokio::test]
async fn whatever_a_start_up_file_does_a_command_is_as_without_it_or_better() {
    // What the file holds, and whether its variable comes through.
    for (profile, captured) in [
        ("echo noise; echo noise >&2; export SET=1", true),
        ("export SET=1; false", true),
        ("export SET=1; set -e", true),
        (
            "export SET=1; set -u; set -x; set -o noclobber; set -f",
            true,
        ),
        ("set -e; export SET=1; false; export SET=2", false),
        ("set -u; echo $undefined_here; export SET=1", false),
        (
            "export SET=1; trap 'echo trapped' EXIT ERR DEBUG RETURN",
            true,
        ),
        ("export SET=1; trap '' TERM INT HUP", true),
        ("export SET=1; cd /tmp; umask 077", true),
        ("export SET=1; exec </dev/null 2>&-", true),
        ("export SET=1; exec >&-", false),
        ("export SET=1; exec >/dev/null", false),
        ("export SET=1; exec /bin/cat", false),
        ("export SET=1; exec /bin/true", false),
        ("export SET=1; exit 0", false),
        ("export SET=1; kill -9 $$", false),
        (
            "export SET=1; printf() { :; }; env() { :; }; trap() { :; }; export -f env",
            true,
        ),
        (
            "export SET=1; alias printf=false; shopt -s expand_aliases",
            true,
        ),
        ("export SET=1; IFS=S; PATH=/nowhere", true),
        ("export SET=1; readonly IFS PATH", true),
        ("export SET=1; sleep 7391 & disown", true),
        ("export SET=1; ulimit -n 64; ulimit -c 0", true),
        ("export SET=1; set -o posix", true),
        ("export SET=1; head -c 3000000 /dev/zero | tr '\\0' a", true),
        ("export SET=1; if then", false),
    ] {
        let server = start_server_with_profile(profile);
        let mut client = server.connect().await;
        let begun = Instant::now();
        let reply = client
            .bash("echo \"${SET-unset}\"; pwd; umask; echo $-")
            .await;
        let expected = if captured { "1" } else { "unset" };
        let umask = String::from_utf8(
            std::process::Command::new("bash")
                .args(["-c", "umask"])
                .output()
                .unwrap()
                .stdout,
        )
        .unwrap();
        let all = format!(
            "{expected}\n{}\n{umask}hBc\nexit_code: 0",
            server.workspace().display()
        );
        assert_eq!(reply.data(), all, "{profile}");
        assert!(
            begun.elapsed() < Duration::from_secs(3),
            "{profile}: {:?}",
            begun.elapsed()
        );
        assert_eq!(reply.notes(), "", "{profile}");
    }
}

#[tokio::test]
async fn a_slow_start_up_file_counts_in_the_end_and_ends_with_the_daemon() {
    let sleep = format!("sleep 2.{}", std::process::id());
    let server = start_server_with_profile(&format!("{sleep}; export SET=late"));
    let mut client = server.connect().await;
    let begun = Instant::now();
    let reply = client.bash("echo ${SET-unset}").await;
    assert_eq!(reply.data(), "unset\nexit_code: 0");
    assert!(
        begun.elapsed() < Duration::from_millis(1_900),
        "{:?}",
        begun.elapsed()
    );
    let begun = Instant::now();
    assert_eq!(
        client.bash("echo ${SET-unset}").await.data(),
        "unset\nexit_code: 0"
    );
    assert!(
        begun.elapsed() < Duration::from_millis(500),
        "{:?}",
        begun.elapsed()
    );
    let until = Instant::now() + SOON;
    while client.bash("echo ${SET-unset}").await.data() != "late\nexit_code: 0" {
        assert!(Instant::now() < until, "the environment does not come");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // It was captured once, and is not captured again for the same file.
    assert_eq!(running_with(&sleep), Vec::<String>::new());
}

#[tokio::test]
async fn a_start_up_file_without_end_is_given_up_with_all_it_started() {
    let sleep = format!("sleep 7392.{}", std::process::id());
    let mut server = start_server_with_profile(&format!(
        "trap '' TERM; {sleep} & setsid -f env -i /bin/{sleep}; {sleep}; wait"
    ));
    let mut client = server.connect().await;
    assert_eq!(client.bash("echo ok").await.data(), "ok\nexit_code: 0");
    assert!(
        running_with(&sleep).len() >= 3,
        "{:?}",
        running_with(&sleep)
    );
    // The patience with it is 10 s; then come grace and kill.
    expect_none(
        "a process of the start-up file is",
        Duration::from_secs(16),
        || running_with(&sleep),
    );
    assert_eq!(client.bash("echo ok").await.data(), "ok\nexit_code: 0");
    server.send_signal(Signal::TERM);
    let (_, log) = server.expect_end(Duration::from_secs(5));
    assert!(
        log.contains("the login environment could not be captured"),
        "{log}"
    );
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_start_up_file() {
    let sleep = format!("sleep 7393.{}", std::process::id());
    let mut server = start_server_with_profile(&format!(
        "trap '' TERM; {sleep} & setsid -f {sleep}; wait; {sleep}"
    ));
    let mut client = server.connect().await;
    client.check_alive().await;
    server.send_signal(Signal::TERM);
    let (code, log) = server.expect_end(Duration::from_secs(5));
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(running_with(&sleep), Vec::<String>::new());
}

#[tokio::test]
async fn functions_of_a_start_up_file_are_there_wherever_a_login_shell_would_call_them() {
    let server = start_server_with_profile(
        "greet() { echo \"hello $1\"; }; given() { echo given; }; export -f given",
    );
    let workspace = server.workspace();
    std::fs::write(workspace.join("sourced"), "greet sourced\n").unwrap();
    std::fs::write(workspace.join("program"), "type -t greet; given\n").unwrap();
    let mut client = server.connect().await;
    for (command, expected) in [
        ("greet you", "hello you"),
        ("true;greet you", "hello you"),
        ("gr\"ee\"t you", "hello you"),
        ("g=greet; $g you", "hello you"),
        (". ./sourced", "hello sourced"),
        ("type -t greet", "function"),
        ("given", "given"),
        // What starts as a program sees those that were exported, and no other.
        ("bash program", "given"),
    ] {
        let reply = client.bash(command).await;
        let expected = format!("{expected}\nexit_code: 0");
        assert_eq!(reply.data(), expected, "{command}");
    }
}
