//! What a command leaves running: listed, bounded, drained, and ended with its session (protocol section 5.1).

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::{Duration, Instant};

use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::binary::{start_scratch, start_server, start_server_in};
use crate::support::processes::{expect_none, running_with};
use crate::support::{Client, Reply, SOON};

/// A sleep that no other test runs.
fn own_sleep(seconds: u32) -> String {
    format!("sleep {seconds}.{}", std::process::id())
}

fn listed(reply: &Reply) -> BTreeSet<u64> {
    let background = reply.details()["background"].as_array().unwrap();
    background
        .iter()
        .map(|entry| entry["pid"].as_u64().unwrap())
        .collect()
}

async fn close(client: &mut Client) -> Value {
    client
        .send("session.close", json!({"session_id": client.session}))
        .await;
    client.expect("session.closed").await
}

#[tokio::test]
async fn what_is_left_is_listed_in_details_and_note_and_ends_with_its_session() {
    let sleep = own_sleep(7361);
    let server = start_server(&["--no-key"]);
    let mut client = server.connect().await;
    let begun = Instant::now();
    let command = format!(
        "{sleep} & setsid {sleep} & (env -i setsid -f /bin/{sleep}) ; nohup {sleep} >/dev/null 2>&1 & disown -a; echo done"
    );
    let reply = client.bash(&command).await;
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(reply.check_done().data(), "done\nexit_code: 0");
    assert_eq!(listed(&reply).len(), 4, "{:#}", reply.0);
    for pid in listed(&reply) {
        assert!(
            reply.notes().contains(&format!("\n{pid} ")),
            "{pid} is not in {}",
            reply.notes()
        );
    }
    client.session = "other".to_owned();
    let other = client.bash(&format!("{sleep} & echo other")).await;
    assert_eq!(listed(&other).len(), 1);
    client.session = "s-1".to_owned();
    let closed = close(&mut client).await;
    assert_eq!(closed["processes_killed"], 4, "{closed}");
    assert_eq!(running_with(&sleep).len(), 1, "the other session's stays");
    client.session = "other".to_owned();
    assert_eq!(close(&mut client).await["processes_killed"], 1);
    assert_eq!(running_with(&sleep), Vec::<String>::new());
}

#[tokio::test]
async fn a_session_keeps_sixty_four_and_says_so_clearly() {
    let sleep = own_sleep(7362);
    let server = start_server(&["--no-key"]);
    let mut client = server.connect().await;
    let many = |count: usize| format!("for i in {{1..{count}}}; do {sleep} >/dev/null 2>&1 & done");
    let reply = client.bash(&many(60)).await;
    assert_eq!(listed(reply.check_done()).len(), 60);
    let reply = client.bash(&many(7)).await;
    assert_eq!(listed(reply.check_done()).len(), 4);
    assert_eq!(reply.details()["killed"], 3);
    assert!(
        reply.notes().contains("3 background processes ended"),
        "{}",
        reply.notes()
    );
    expect_none("one too many is", SOON, || {
        let running = running_with(&sleep);
        if running.len() > 64 {
            running
        } else {
            Vec::new()
        }
    });
    let refused = client.bash("touch ran").await;
    refused.check_tool_error(&["no more than 64", "Nothing was run", "Close the session"]);
    assert!(!server.workspace().join("ran").exists());
    // Another session has its own, and a place that becomes free may be taken.
    client.session = "other".to_owned();
    client.check_alive().await;
    client.session = "s-1".to_owned();
    let one = i32::try_from(*listed(&reply).first().unwrap()).unwrap();
    kill_process(Pid::from_raw(one).unwrap(), Signal::KILL).unwrap();
    let until = Instant::now() + SOON;
    while client.bash("true").await.is_error() {
        assert!(Instant::now() < until, "the place is not free again");
    }
    assert_eq!(close(&mut client).await["processes_killed"], 63);
    assert_eq!(running_with(&sleep), Vec::<String>::new());
}

#[tokio::test]
async fn a_background_process_that_prints_is_neither_blocked_nor_gathered() {
    let server = start_server(&["--no-key"]);
    let mut client = server.connect().await;
    let reply = client.bash("echo done; (for i in {1..40}; do head -c 1000000 /dev/zero; done; sleep 0.2; for i in {1..40}; do head -c 1000000 /dev/zero >&2; done; touch printed) &").await;
    assert!(
        reply.check_done().data().contains("done"),
        "{:.200}",
        reply.data()
    );
    let until = Instant::now() + SOON;
    while !server.workspace().join("printed").exists() {
        assert!(
            Instant::now() < until,
            "it stands still: nobody reads its pipe"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", server.daemon().as_raw_nonzero()))
            .unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 64 * 1024, "the daemon took {kib} KiB");
}

#[tokio::test]
async fn an_outsider_that_holds_a_pipe_delays_nothing_and_writes_on_until_the_session_ends() {
    let server = start_server(&["--no-key"]);
    let mut client = server.connect().await;
    let command =
        "echo $$ >pid.new; mv pid.new pid; until [ -e held ]; do sleep 0.01; done; echo said";
    let id = client.send_call("bash", json!({"command": command})).await;
    let pid = wait_for(|| std::fs::read_to_string(server.workspace().join("pid")).ok()).await;
    let stdout = format!("/proc/{}/fd/1", pid.trim());
    let mut held = std::fs::File::options().write(true).open(stdout).unwrap();
    std::fs::write(server.workspace().join("held"), "").unwrap();
    let reply = client.expect_result(&id).await;
    assert_eq!(reply.check_done().data(), "said\nexit_code: 0");
    assert_eq!(listed(&reply), BTreeSet::new());
    // More than a pipe holds: somebody reads it.
    let held = tokio::task::spawn_blocking(move || {
        held.write_all(&vec![b'x'; 1 << 20]).unwrap();
        held
    })
    .await
    .unwrap();
    close(&mut client).await;
    wait_for(|| (&held).write_all(b"x").is_err().then_some(())).await;
}

#[tokio::test]
async fn what_a_full_pipe_holds_at_the_end_is_taken_however_large_the_command_made_it() {
    const BYTES: usize = 1 << 20;
    let server = start_server(&["--no-key"]);
    let mut client = server.connect().await;
    let command = "echo $$ >pid.new; mv pid.new pid; until [ -e go ]; do sleep 0.01; done; head -c 1048576 /dev/zero; echo >&2";
    let id = client.send_call("bash", json!({"command": command})).await;
    let pid = wait_for(|| std::fs::read_to_string(server.workspace().join("pid")).ok()).await;
    let stdout = format!("/proc/{}/fd/1", pid.trim());
    let pipe = std::fs::File::options().write(true).open(stdout).unwrap();
    assert!(fcntl_setpipe_size(&pipe, BYTES).unwrap() >= BYTES);
    drop(pipe);
    // Nothing is read until everything has been written and the shell is dead.
    kill_process(server.daemon(), Signal::STOP).unwrap();
    std::fs::write(server.workspace().join("go"), "").unwrap();
    let stat = format!("/proc/{}/stat", pid.trim());
    let dead = || std::fs::read_to_string(&stat).unwrap().contains(") Z ");
    wait_for(|| dead().then_some(())).await;
    kill_process(server.daemon(), Signal::CONT).unwrap();
    let reply = client.expect_result(&id).await;
    let details = reply.check_done().details();
    let bytes = [&details["stdout_bytes"], &details["stderr_bytes"]];
    assert_eq!(bytes, [&json!(BYTES), &json!(1)]);
}

/// Waits until there is something.
async fn wait_for<T>(look: impl Fn() -> Option<T>) -> T {
    let until = Instant::now() + SOON;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "it does not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn it_ends_with_the_shell_where_the_configuration_file_says_so() {
    let sleep = own_sleep(7363);
    let scratch = start_scratch();
    let file = scratch.path().join("config.toml");
    std::fs::write(&file, "background = \"kill\"\n").unwrap();
    let path = file.to_str().unwrap().to_owned();
    let server = start_server_in(scratch, &["--no-key", "--config", &path]);
    let mut client = server.connect().await;
    let command = format!(
        "{sleep} & setsid -f {sleep}; (env -i setsid /bin/{sleep} &) ; trap '' TERM; nohup {sleep} >/dev/null 2>&1 & echo done; exit 4"
    );
    let reply = client.bash(&command).await;
    assert_eq!(reply.check_done().data(), "done\nexit_code: 4");
    assert_eq!(reply.details()["killed"], 4, "{:#}", reply.0);
    assert_eq!(listed(&reply).len(), 0);
    assert_eq!(reply.details()["survived"], json!([]));
    assert_eq!(running_with(&sleep), Vec::<String>::new());
    assert_eq!(
        client.bash("echo alone").await.data(),
        "alone\nexit_code: 0"
    );
}
