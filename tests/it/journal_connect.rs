//! A daemon that dials, killed and started again: its harness finds what it may not have, named in the hello and sent first.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::connect::{Dialler, start_dialler, start_harness};
use crate::support::SOON;
use crate::support::processes::processes;

/// Kills the process that serves; the one that was started watches over it.
fn kill_daemon(dialler: &Dialler) {
    let daemon = processes()
        .into_iter()
        .find(|process| process.ppid == dialler.child.id());
    let pid = daemon.expect("the daemon runs").pid.try_into().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn the_hello_of_the_next_daemon_names_what_comes_first() {
    let harness = start_harness().await;
    let dialler = start_dialler(&harness.url(), &[]);
    let mut client = harness.expect_executor().await;
    client.send_welcome().await;
    client
        .send_call_as("c-1", "bash", json!({"command": "echo one"}), json!({}))
        .await;
    let wanted = |frame: &Value| frame["method"] == "tool.result";
    let one = client.expect_within("the first result", SOON, wanted).await;
    client
        .send_call_as(
            "c-2",
            "bash",
            json!({"command": "echo run >>runs; echo begun; sleep 7412"}),
            json!({}),
        )
        .await;
    client.expect("tool.progress").await;
    kill_daemon(&dialler);
    let dialler = dialler.start_again(&harness.url());
    let mut client = harness.expect_executor().await;
    let resume = &client.hello["params"]["resume"];
    assert_eq!(
        *resume,
        json!([{"session_id": "s-1", "running": [], "unacked": ["c-1", "c-2"]}])
    );
    client.send_welcome().await;
    client
        .send_call_as("c-3", "bash", json!({"command": "echo alive"}), json!({}))
        .await;
    client.expect_result("c-3").await.check_done();
    let frames = client.drain(std::time::Duration::from_millis(100)).await;
    let results: Vec<_> = frames
        .iter()
        .filter(|frame| frame["method"] == "tool.result")
        .collect();
    assert_eq!(*results[0], one);
    assert_eq!(results[1]["params"]["outcome"], "unknown");
    assert_eq!(
        std::fs::read_to_string(dialler.workspace().join("runs")).unwrap(),
        "run\n"
    );
}
