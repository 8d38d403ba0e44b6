//! Where the journal cannot be kept: the daemon works on, and says so in its log and to its harnesses.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::binary::{
    Server, command, run, start_scratch, start_server, start_server_in, start_server_through,
};
use crate::support::{Client, SOON};

const ARGUMENTS: [&str; 1] = ["--no-key"];

/// A program that mounts a disk of 200 KiB over a directory, for itself alone, and becomes what follows.
const SMALL_DISK: &str = r#"mkdir -p -m 700 "$STATE" && mount -t tmpfs -o size=200k,mode=700 none "$STATE" && exec "$0" "$@""#;

/// Fails unless an update says that the journal is in memory; returns why.
#[track_caller]
fn check_memory(update: &Value) -> String {
    let environment = &update["environment"];
    assert_eq!(environment["journal"], "memory", "{environment:#}");
    environment["reasons"]["journal"]
        .as_str()
        .expect("a reason is given")
        .to_owned()
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_had_is_named_and_calls_run_all_the_same() {
    let scratch = start_scratch();
    std::fs::write(scratch.path().join("file"), "x").unwrap();
    let place = scratch.path().join("file/state");
    let place = place.to_str().unwrap().to_owned();
    let mut server = start_server_in(scratch, &["--no-key", "--state-dir", &place]);
    let mut client = server.connect().await;
    let reason = check_memory(&client.update["params"]);
    assert!(
        reason.contains(&place) && reason.contains("--state-dir"),
        "{reason}"
    );
    client.check_alive().await;
    server.send_signal(Signal::TERM);
    let (_, log) = server.expect_end(SOON);
    assert!(log.contains(&place), "{log}");
}

#[tokio::test]
async fn a_second_daemon_over_the_workspace_keeps_its_calls_in_memory() {
    let server = start_server(&ARGUMENTS);
    let mut first = server.connect().await;
    assert_eq!(first.update["params"]["environment"]["journal"], "disk");
    first.check_alive().await;
    let mut second = command(server.scratch());
    let second = second.args(["describe", "--no-key"]);
    let described = run(second);
    let update: Value = serde_json::from_str(&described.stdout).unwrap();
    let reason = check_memory(&update["params"]);
    assert!(reason.contains("another executor"), "{reason}");
    // The first one's journal is as it was.
    let mut server = server;
    server.kill_and_start_again(&ARGUMENTS);
    let mut client = server.connect().await;
    client
        .send_call_as("c-1", "bash", json!({"command": "echo alive"}), json!({}))
        .await;
    client.expect_result("c-1").await.check_done();
}

#[tokio::test]
async fn garbage_in_the_place_of_the_journal_is_logged_and_stops_nothing() {
    let mut server = start_server(&ARGUMENTS);
    let mut client = server.connect().await;
    client.check_alive().await;
    let journal = server.journal();
    server.send_signal(Signal::TERM);
    server.expect_end(SOON);
    std::fs::write(&journal, [0xff; 10_000]).unwrap();
    server.start_again(&ARGUMENTS);
    let mut client = server.connect().await;
    assert_eq!(client.update["params"]["environment"]["journal"], "disk");
    client.check_alive().await;
    server.send_signal(Signal::TERM);
    let (_, log) = server.expect_end(SOON);
    assert!(log.contains("the journal is damaged"), "{log}");
}

/// Makes calls until the journal is full, and checks that nothing is lost that was in it.
async fn check_a_full_journal(mut server: Server, survives: bool) {
    let mut client = server.connect().await;
    assert_eq!(client.update["params"]["environment"]["journal"], "disk");
    let text = "x".repeat(40_000);
    let input = |at: usize| json!({"command": format!("echo run >>runs-{at}; echo {at} {text}")});
    let lost = |frame: &Value| frame["method"] == "executor.capabilities.update";
    let mut answers = Vec::new();
    for at in 0..12 {
        let id = format!("full-{at}");
        client.send_call_as(&id, "bash", input(at), json!({})).await;
        answers.push(client.expect_result(&id).await);
        answers[at].check_done();
    }
    let update = client.expect_within("an update", SOON, lost).await;
    let reason = check_memory(&update["params"]);
    assert!(reason.contains("could not be written"), "{reason}");
    client.check_alive().await;
    if !survives {
        return;
    }
    server.kill_and_start_again(&ARGUMENTS);
    let mut client = server.connect().await;
    let mut known = 0;
    for (at, answer) in answers.iter().enumerate().take(3) {
        let id = format!("full-{at}");
        client.send_call_as(&id, "bash", input(at), json!({})).await;
        known += usize::from(client.expect_result(&id).await.0 == answer.0);
        let runs = std::fs::read_to_string(server.workspace().join(format!("runs-{at}"))).unwrap();
        assert_eq!(runs, "run\n", "call {at}");
    }
    assert_eq!(
        known, 3,
        "what was written before the disk was full is known"
    );
}

#[tokio::test]
async fn a_journal_that_may_not_grow_is_left_whole_and_calls_go_on() {
    let server = start_server_through(&["prlimit", "--fsize=150000"], start_scratch(), &ARGUMENTS);
    check_a_full_journal(server, true).await;
}

#[tokio::test]
async fn on_a_full_disk_calls_go_on_without_a_journal() {
    let scratch = start_scratch();
    let state = scratch.path().join("small");
    let flags = if rustix::process::geteuid().is_root() {
        "-m"
    } else {
        "-rm"
    };
    let assignment = format!("STATE={}", state.display());
    let through = ["env", &assignment, "unshare", flags, "sh", "-c", SMALL_DISK];
    let can = Command::new(through[0])
        .args(&through[1..])
        .arg("true")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !can {
        println!("not run: this user cannot mount a small disk");
        return;
    }
    let arguments = ["--no-key", "--state-dir", state.to_str().unwrap()];
    let server = start_server_through(&through, scratch, &arguments);
    check_a_full_journal(server, false).await;
}

#[tokio::test]
async fn a_journal_that_is_removed_is_missed() {
    let server = start_server(&["--no-key", "--session-ttl", "4s"]);
    let mut client: Client = server.connect().await;
    client.check_alive().await;
    std::fs::remove_file(server.journal()).unwrap();
    let lost = |frame: &Value| frame["method"] == "executor.capabilities.update";
    let update = client
        .expect_within("an update", SOON + Duration::from_secs(5), lost)
        .await;
    assert!(check_memory(&update["params"]).contains("removed"));
    client.check_alive().await;
}
