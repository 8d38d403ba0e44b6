//! The daemon and the service manager that started it, played here by a socket (`sd_notify(3)`).

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt::set_socket_passcred,
};
use rustix::process::{Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tempfile::TempDir;

use crate::support::SOON;
use crate::support::binary::{BINARY, Server, command, run, start_scratch, start_server_by};
use crate::support::wrapped::command_through;

/// Long enough for a loaded machine, short enough to see several signs of life.
const WATCHDOG_MICROS: &str = "400000";

/// A service manager's socket.
struct Manager {
    socket: UnixDatagram,
    /// What came, for the message of a failing test.
    seen: VecDeque<String>,
}

/// Starts a manager that listens at an address, and the value of `NOTIFY_SOCKET` that names it.
fn start_manager(scratch: &TempDir, is_abstract: bool) -> (Manager, String) {
    let path = scratch.path().join("notify").to_str().unwrap().to_owned();
    let (address, name) = if is_abstract {
        (
            SocketAddr::from_abstract_name(&path).unwrap(),
            format!("@{path}"),
        )
    } else {
        (SocketAddr::from_pathname(&path).unwrap(), path)
    };
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    set_socket_passcred(&socket, true).unwrap();
    let seen = VecDeque::new();
    (Manager { socket, seen }, name)
}

impl Manager {
    /// Takes the next message, which must be from the guardian: a real manager ignores every other process.
    fn next(&mut self, within: Duration, guardian: Option<rustix::process::Pid>) -> Option<String> {
        self.socket
            .set_read_timeout(Some(within.max(Duration::from_millis(1))))
            .unwrap();
        let mut text = [0; 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut text)];
        let got = recvmsg(
            &self.socket,
            &mut slices,
            &mut ancillary,
            RecvFlags::empty(),
        );
        let length = match got {
            Ok(got) => got.bytes,
            Err(rustix::io::Errno::AGAIN) => return None,
            Err(error) => panic!("the manager's socket fails: {error}"),
        };
        for message in ancillary.drain() {
            if let (RecvAncillaryMessage::ScmCredentials(sender), Some(guardian)) =
                (message, guardian)
            {
                assert_eq!(sender.pid, guardian, "somebody else speaks to the manager");
            }
        }
        let text = String::from_utf8(text[..length].to_vec()).unwrap();
        self.seen.push_back(text.clone());
        Some(text)
    }

    /// Waits for a message with this line; returns the whole message.
    #[track_caller]
    fn expect(&mut self, line: &str, server: &Server) -> String {
        let until = Instant::now() + SOON;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if let Some(text) = self.next(left, Some(server.guardian()))
                && text.lines().any(|other| other == line)
            {
                return text;
            }
        }
        panic!("{line} did not come, but {:?}", self.seen);
    }
}

/// Starts `serve` under a manager that watches over it, as systemd does: the process that it starts is the one that it
/// watches.
fn start_managed(scratch: TempDir, socket: &str) -> Server {
    let line = format!("export WATCHDOG_PID=$$; exec {BINARY} serve --no-key --listen 127.0.0.1:0");
    let mut command = command_through("/bin/bash", &["-c", &line], scratch.path());
    command
        .env("NOTIFY_SOCKET", socket)
        .env("WATCHDOG_USEC", WATCHDOG_MICROS);
    start_server_by(scratch, command)
}

fn monotonic_micros() -> u128 {
    Duration::try_from(clock_gettime(ClockId::Monotonic))
        .unwrap()
        .as_micros()
}

#[tokio::test]
async fn a_manager_hears_of_start_life_reload_and_stop_from_the_process_that_it_started() {
    for is_abstract in [false, true] {
        let scratch = start_scratch();
        let (mut manager, name) = start_manager(&scratch, is_abstract);
        let mut server = start_managed(scratch, &name);
        manager.expect("READY=1", &server);
        // Whoever waited for the word is served.
        let mut client = server.connect().await;
        for _ in 0..3 {
            manager.expect("WATCHDOG=1", &server);
        }

        let before = monotonic_micros();
        server.send_signal(Signal::HUP);
        let reloading = manager.expect("RELOADING=1", &server);
        let stamp = reloading
            .lines()
            .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        let stamp: u128 = stamp
            .unwrap_or_else(|| panic!("{reloading}"))
            .parse()
            .unwrap();
        assert!(
            (before..=monotonic_micros()).contains(&stamp),
            "{before}, {reloading}"
        );
        manager.expect("READY=1", &server);

        let id = client
            .send_call("bash", json!({"command": "echo begun; sleep 7433"}))
            .await;
        client.expect("tool.progress").await;
        server.send_signal(Signal::TERM);
        manager.expect("STOPPING=1", &server);
        // The word came while the call still had its time.
        assert_eq!(client.expect_result(&id).await.code(), "shutting_down");
        let (code, log) = server.expect_end(SOON);
        assert_eq!(code, Some(0), "{log}");
    }
}

#[tokio::test]
async fn a_daemon_that_stands_still_shows_no_life() {
    let scratch = start_scratch();
    let (mut manager, name) = start_manager(&scratch, false);
    let server = start_managed(scratch, &name);
    manager.expect("WATCHDOG=1", &server);
    kill_process(server.daemon(), Signal::STOP).unwrap();
    // What was sent before the stop may still be on its way; then comes nothing, though the guardian runs on.
    while manager
        .next(Duration::from_millis(300), Some(server.guardian()))
        .is_some()
    {}
    let late = manager.next(Duration::from_millis(800), Some(server.guardian()));
    kill_process(server.daemon(), Signal::CONT).unwrap();
    assert_eq!(late, None);
    manager.expect("WATCHDOG=1", &server);
}

#[tokio::test]
async fn commands_see_nothing_of_the_service_and_cannot_speak_for_it() {
    let scratch = start_scratch();
    let (mut manager, name) = start_manager(&scratch, false);
    let server = start_managed(scratch, &name);
    manager.expect("READY=1", &server);
    let mut client = server.connect().await;
    let command = "env | grep -E 'NOTIFY|WATCHDOG|BMA_'; readlink /proc/self/fd/0; ls /proc/$PPID/fd 2>&1 | grep -c denied";
    let reply = client.bash(command).await;
    let lines: Vec<&str> = reply.data().lines().collect();
    assert_eq!(lines[0], "/dev/null", "{}", reply.data());
    // Root may look anywhere.
    if !rustix::process::geteuid().is_root() {
        assert_eq!(lines[1], "1", "{}", reply.data());
    }
    assert_eq!(
        manager
            .seen
            .iter()
            .filter(|text| text.contains("READY"))
            .count(),
        1
    );
}

#[test]
fn a_daemon_that_cannot_start_is_never_called_ready() {
    let scratch = start_scratch();
    let (mut manager, name) = start_manager(&scratch, false);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let printed = run(command(scratch.path())
        .args(["serve", "--no-key", "--listen", &address])
        .env("NOTIFY_SOCKET", OsStr::new(&name)));
    assert_eq!(printed.code, 1, "{}", printed.stderr);
    assert_eq!(manager.next(Duration::from_millis(1), None), None);
}

#[test]
fn an_address_of_no_known_kind_is_named() {
    let scratch = start_scratch();
    let printed = run(command(scratch.path())
        .args(["serve", "--no-key", "--listen", "127.0.0.1:0"])
        .env("NOTIFY_SOCKET", "vsock:2:1234"));
    assert_eq!(printed.code, 1);
    assert!(
        printed.stderr.contains("NOTIFY_SOCKET"),
        "{}",
        printed.stderr
    );
}
