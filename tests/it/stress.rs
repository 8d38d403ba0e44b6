//! Two thousand commands that end in every way there is, after which nothing may be left (case BASH-07 and its neighbours).

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;
use serde_json::{Value, json};

use crate::support::binary::{Server, start_server};
use crate::support::contract::files_below;
use crate::support::processes::{expect_none, processes, running_with};
use crate::support::wrapped::{start_first_server, start_ordinary_server};
use crate::support::{Client, Reply, slow_tests_run, start_executor};

/// Calls of one run.
const CALLS: usize = 2_000;

/// Calls on their way at one time.
const IN_FLIGHT: usize = 24;

/// Longest wait for one of them on a busy machine: a storm is ended while two dozen others begin.
const PATIENCE: Duration = Duration::from_mins(1);

/// The session of commands that leave more behind than a session keeps.
const CROWDED: &str = "crowded";

/// What a call is expected to come to.
#[derive(Debug, Clone, Copy)]
enum End {
    Exit(usize),
    Signal(&'static str),
    Timeout,
    Cancel,
    /// Done, or refused since the session is full.
    ExitOrFull,
}

/// One command of the mix: what it runs, what it prints, how it ends.
struct Planned {
    command: String,
    printed: String,
    end: End,
}

/// The mix. `sleep` is a command that no other test runs.
fn planned(at: usize, sleep: &str) -> Planned {
    let (command, end) = match at % 25 {
        0..=7 => (format!("exit {}", at % 7), End::Exit(at % 7)),
        8 => ("kill -9 $$".to_owned(), End::Signal("SIGKILL")),
        9 => ("yes | head -c 200000 >&2".to_owned(), End::Exit(0)),
        10 => ("(setsid sleep 0.2 &) ; (: &)".to_owned(), End::Exit(0)),
        11 => (
            "setsid -f sleep 0.3 >/dev/null 2>&1".to_owned(),
            End::Exit(0),
        ),
        12 => (sleep.to_owned(), End::Timeout),
        13 => (format!("setsid {sleep} & {sleep} & wait"), End::Timeout),
        14 => (
            format!("( ({sleep} &) & ); setsid -f {sleep}; {sleep}"),
            End::Timeout,
        ),
        15 => (
            format!("env -i setsid /bin/{sleep} & {sleep} | cat"),
            End::Timeout,
        ),
        16 if at % 200 == 16 => (
            format!("for i in {{1..200}}; do {sleep} & done; wait"),
            End::Timeout,
        ),
        17 if at % 200 == 17 => (
            format!("for i in {{1..200}}; do setsid -f env -i /bin/{sleep} & done; wait; {sleep}"),
            End::Cancel,
        ),
        18 if at % 200 == 18 => (
            format!("trap '' TERM; {sleep} & while :; do wait; done"),
            End::Timeout,
        ),
        19 if at % 200 == 19 => (
            format!("for i in {{1..200}}; do {sleep} >/dev/null 2>&1 & done"),
            End::ExitOrFull,
        ),
        20 if at % 200 == 20 => (format!("{sleep} & setsid {sleep} &"), End::ExitOrFull),
        16..=20 => (sleep.to_owned(), End::Cancel),
        21 => (format!("setsid {sleep} & wait"), End::Cancel),
        22 => (
            format!("(setsid env -i /bin/{sleep} &) ; {sleep}"),
            End::Cancel,
        ),
        23 => (format!("exec setsid -w {sleep}"), End::Cancel),
        _ => (format!("{sleep} | {sleep} | cat"), End::Cancel),
    };
    let printed = format!("call {at}\n");
    let command = format!("echo call {at}; {command}");
    Planned {
        command,
        printed,
        end,
    }
}

impl Planned {
    #[track_caller]
    fn check(&self, reply: &Reply) {
        let said = format!("{}: {:#}", self.command, reply.0);
        let details = reply.details();
        let full = reply.data().contains("no more than 64");
        if matches!(self.end, End::ExitOrFull) && full {
            assert!(reply.is_error(), "{said}");
            return;
        }
        // A call that was cancelled before it ran has printed nothing.
        if !matches!(self.end, End::Cancel) || details.is_object() && details["stdout_bytes"] != 0 {
            assert!(reply.data().starts_with(&self.printed), "{said}");
        }
        if details.is_object() {
            assert_eq!(details["survived"], json!([]), "{said}");
        }
        match self.end {
            End::Exit(code) => assert_eq!(
                (reply.outcome(), &details["exit_code"]),
                ("succeeded", &json!(code)),
                "{said}"
            ),
            End::ExitOrFull => assert_eq!(details["exit_code"], 0, "{said}"),
            End::Signal(name) => assert_eq!(details["signal"], name, "{said}"),
            End::Timeout => assert_eq!(
                (reply.outcome(), &details["cause"]),
                ("succeeded", &json!("timeout")),
                "{said}"
            ),
            End::Cancel => assert_eq!(
                (reply.outcome(), reply.code()),
                ("cancelled", "cancelled"),
                "{said}"
            ),
        }
    }
}

/// Runs the mix and closes its sessions; each call must have come to one right end. Returns the files that results name.
async fn run_mix(client: &mut Client, sleep: &str) -> BTreeSet<String> {
    let mut kept = BTreeSet::from([".bma/.gitignore".to_owned()]);
    let mut waiting: HashMap<String, Planned> = HashMap::new();
    let mut to_cancel: VecDeque<String> = VecDeque::new();
    let mut next = 0;
    while next < CALLS || !waiting.is_empty() {
        while next < CALLS && waiting.len() < IN_FLIGHT {
            let planned = planned(next, sleep);
            let id = format!("mix-{next}");
            client.session = match planned.end {
                End::ExitOrFull => CROWDED.to_owned(),
                _ => format!("m-{}", next % 4),
            };
            let mut input = json!({"command": planned.command});
            match planned.end {
                End::Timeout => input["timeout_ms"] = json!(1_000),
                End::Cancel => to_cancel.push_back(id.clone()),
                _ => {}
            }
            client.send_call_as(&id, "bash", input, json!({})).await;
            waiting.insert(id, planned);
            next += 1;
            // Some are cancelled as they start, others when they have run for a while.
            if to_cancel.len() > next % 6 || next == CALLS {
                for id in std::mem::take(&mut to_cancel) {
                    let at: usize = id.trim_start_matches("mix-").parse().unwrap();
                    client.session = format!("m-{}", at % 4);
                    client.send_cancel(&id).await;
                }
            }
        }
        let (id, reply) = client.expect_any_result(PATIENCE).await;
        let planned = waiting
            .remove(&id)
            .unwrap_or_else(|| panic!("{id} was answered before: {:#}", reply.0));
        planned.check(&reply);
        for path in ["stdout", "stderr"].map(|stream| &reply.details()["output_paths"][stream]) {
            kept.extend(path.as_str().map(str::to_owned));
        }
    }
    for session in ["m-0", "m-1", "m-2", "m-3", CROWDED] {
        client
            .send("session.close", json!({"session_id": session}))
            .await;
        let closed = |frame: &Value| {
            frame["method"] == "session.closed" && frame["params"]["session_id"] == session
        };
        client
            .expect_within("session.closed", PATIENCE, closed)
            .await;
    }
    let late = client.drain(Duration::from_millis(300)).await;
    let second: Vec<_> = late
        .iter()
        .filter(|frame| frame["method"] == "tool.result")
        .collect();
    assert!(second.is_empty(), "calls were answered twice: {second:#?}");
    kept
}

fn descriptors(daemon: Pid) -> Option<usize> {
    let path = format!("/proc/{}/fd", daemon.as_raw_nonzero());
    std::fs::read_dir(path).ok().map(Iterator::count)
}

/// The files below a workspace.
fn files(workspace: &Path) -> BTreeSet<String> {
    let below = |path: PathBuf| path.strip_prefix(workspace).unwrap().display().to_string();
    files_below(workspace).into_iter().map(below).collect()
}

/// A number that makes this process's sleeps its own.
fn own_sleep(seconds: u32) -> String {
    format!("sleep {seconds}.{}", std::process::id())
}

/// Runs the mix against a daemon and looks for what it leaves.
async fn check_nothing_is_left(server: &Server, seconds: u32) {
    let sleep = own_sleep(seconds);
    let mut client = server.connect().await;
    client.check_alive().await;
    client
        .send("session.close", json!({"session_id": client.session}))
        .await;
    client.expect("session.closed").await;
    let before = descriptors(server.daemon());
    let kept = run_mix(&mut client, &sleep).await;
    expect_none("a command is", Duration::from_secs(5), || {
        running_with(&sleep)
    });
    let (daemon, guardian) = (
        server.daemon().as_raw_nonzero().get(),
        server.guardian().as_raw_nonzero().get(),
    );
    expect_none(
        "a child of the daemon or its guardian is",
        Duration::from_secs(5),
        || {
            let is_left = |child: u32, parent: u32| {
                let (child, parent) = (child.cast_signed(), parent.cast_signed());
                child != daemon && (parent == daemon || parent == guardian)
            };
            let left = processes()
                .into_iter()
                .filter(|process| is_left(process.pid, process.ppid));
            left.map(|process| format!("{process:?}")).collect()
        },
    );
    match before {
        Some(before) => expect_none("a descriptor is", Duration::from_secs(5), || {
            let now = descriptors(server.daemon()).unwrap();
            Vec::from_iter((now > before).then(|| format!("{now} descriptors, {before} before")))
        }),
        None => {
            println!("not looked at: the daemon's descriptors, which only the superuser may see");
        }
    }
    assert_eq!(files(&server.workspace()), kept);
}

#[tokio::test]
async fn two_thousand_commands_of_every_kind_leave_nothing() {
    if !slow_tests_run() {
        return;
    }
    check_nothing_is_left(&start_server(&["--no-key"]), 7351).await;
}

#[tokio::test]
async fn two_thousand_commands_below_pid_1_leave_nothing() {
    if !slow_tests_run() {
        return;
    }
    let Some(server) = start_first_server() else {
        return;
    };
    check_nothing_is_left(&server, 7352).await;
}

#[tokio::test]
async fn two_thousand_commands_of_an_ordinary_user_leave_nothing() {
    if !slow_tests_run() {
        return;
    }
    let Some(server) = start_ordinary_server(&[]) else {
        return;
    };
    check_nothing_is_left(&server, 7353).await;
}

/// The daemon in this process, whose descriptors an ordinary user may count too.
#[tokio::test]
async fn two_thousand_commands_leave_no_descriptor_in_this_process() {
    if !slow_tests_run() {
        return;
    }
    let sleep = own_sleep(7354);
    let executor = start_executor();
    let mut client = executor.connect().await;
    client.check_alive().await;
    client
        .send("session.close", json!({"session_id": client.session}))
        .await;
    client.expect("session.closed").await;
    let me = rustix::process::getpid();
    let before = descriptors(me).unwrap();
    let kept = run_mix(&mut client, &sleep).await;
    expect_none("a command is", Duration::from_secs(5), || {
        running_with(&sleep)
    });
    expect_none("a descriptor is", Duration::from_secs(5), || {
        let now = descriptors(me).unwrap();
        Vec::from_iter((now > before).then(|| format!("{now} descriptors, {before} before")))
    });
    assert_eq!(files(executor.workspace()), kept);
}
