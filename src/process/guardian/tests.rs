//! The guardian and its daemon, played by the test program itself.

#![expect(
    clippy::disallowed_methods,
    clippy::exit,
    reason = "the test program starts itself in other roles"
)]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use super::*;
use crate::process::{detach, unmarked};

const ROLE: &str = "TEST_ROLE";

/// What a daemon leaves when it is killed: a member of its tree, and one that has left session and environment.
const LEFT: &str = "sleep 7331 & (setsid env -i /bin/sleep 7331 &) ; sleep 7331 & wait";

/// Not a test by itself: the other programs of the tests below, which start this one again.
#[test]
fn role() {
    let args = ["--exact", "process::guardian::tests::role", "--nocapture"].map(OsString::from);
    match std::env::var(ROLE).as_deref() {
        Ok("guardian") => {
            let env = [
                (ROLE.into(), "daemon".into()),
                ("PATH".into(), "/usr/bin:/bin".into()),
            ];
            let code = guard(args, env).unwrap();
            std::process::exit(code.into());
        }
        Ok("daemon") => {
            let guardian = std::env::var(GUARDIAN_VARIABLE).unwrap().parse().unwrap();
            detach(guardian).unwrap();
            let tty = std::fs::OpenOptions::new().read(true).open("/dev/tty");
            assert!(tty.is_err(), "there is a controlling terminal");
            println!("\ndaemon {}", std::process::id());
            let mut shell = Command::new("/bin/bash")
                .args(["-c", LEFT])
                .spawn()
                .unwrap();
            shell.wait().unwrap();
        }
        _ => {}
    }
}

fn start() -> (Child, Pid) {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--exact", "process::guardian::tests::role", "--nocapture"])
        .env(ROLE, "guardian")
        .stdout(Stdio::piped());
    let mut guardian = unmarked(|| command.spawn()).unwrap();
    let lines = BufReader::new(guardian.stdout.take().unwrap()).lines();
    let daemon = lines
        .map(Result::unwrap)
        .find_map(|line| line.strip_prefix("daemon ")?.parse().ok())
        .expect("the daemon did not start");
    (guardian, Pid::from_raw(daemon).unwrap())
}

fn left() -> usize {
    let entries = table::snapshot(&HashSet::new()).entries;
    entries
        .iter()
        .filter(|entry| table::command_line(entry.pid).ends_with("sleep 7331"))
        .count()
}

#[test]
fn a_daemon_that_ends_leaves_nothing_and_its_end_is_passed_on() {
    // One after the other: both count the same processes.
    for (signal, by_guardian, code) in [
        (Signal::KILL, false, 137),
        (Signal::TERM, true, 143),
        (Signal::INT, true, 130),
    ] {
        let (mut guardian, daemon) = start();
        let until = Instant::now() + Duration::from_secs(10);
        while left() < 3 {
            assert!(Instant::now() < until, "only {} have started", left());
        }
        let number = if by_guardian {
            as_pid(guardian.id()).unwrap()
        } else {
            daemon
        };
        kill_process(number, signal).unwrap();
        assert_eq!(guardian.wait().unwrap().code(), Some(code));
        assert_eq!(left(), 0);
    }
}
