//! The small parent of the daemon: it hands signals on, and ends what a killed daemon leaves behind.
//!
//! It must never run anything but the daemon, hold anything but numbers, or end before the last process it is
//! responsible for.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::signal::unix::{SignalKind, signal};

use super::children::{self, as_pid};
use super::manager::Relay;
use super::protect;
use super::table;

/// Tells the started daemon who its guardian is: its process number.
pub const GUARDIAN_VARIABLE: &str = "BMA_EXECUTOR_GUARDIAN";

/// Keeps the memory of the daemon together (glibc manual, "Memory Allocation Tunables"). By itself the C library gives each
/// thread a heap of its own, and each keeps what it once needed for the largest file; and of the small pieces that a call takes
/// and gives back, hundreds of one size, it keeps seven at hand and puts the others together for the next call to take apart.
const ALLOCATOR: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.malloc.arena_max=2:glibc.malloc.tcache_count=64",
);

/// Pause between two rounds of killing; the dead need a moment to go.
const ROUND: Duration = Duration::from_millis(5);

/// How long killed processes are waited for. One in an uninterruptible wait may stay for ever.
const SETTLE: Duration = Duration::from_secs(3);

/// Signals that the daemon gets, in its own session, through its guardian only.
const HANDED_ON: [(SignalKind, Signal); 4] = [
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::hangup(), Signal::HUP),
    (SignalKind::quit(), Signal::QUIT),
];

/// Starts this program again as the daemon, with `args` and the variable [`GUARDIAN_VARIABLE`] added to `env`, and
/// stays until it and everything it started have ended. Returns the exit code to end with.
///
/// The daemon calls [`super::detach`] with the number in the variable, then [`super::protect_self`], before it does
/// anything else.
///
/// # Errors
/// Where the daemon cannot be started or signals cannot be received.
pub fn guard(
    args: impl IntoIterator<Item = OsString>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> io::Result<u8> {
    protect::adopt_orphans()?;
    protect::protect_self()?;
    let mut env: Vec<_> = env.into_iter().collect();
    let relay = Relay::take(&mut env)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    #[expect(clippy::disallowed_methods, reason = "this is the door to programs")]
    let mut command = Command::new("/proc/self/exe");
    // The name under which operators look for it; the path above says nothing in a process list.
    command
        .arg0(env!("CARGO_PKG_NAME"))
        .args(args)
        .env_clear()
        .env(ALLOCATOR.0, ALLOCATOR.1)
        // What is given counts.
        .envs(env)
        .env(GUARDIAN_VARIABLE, std::process::id().to_string());
    let relay = relay.map(|(relay, end)| {
        command.stdin(end);
        relay
    });
    runtime.block_on(stay(command, relay))
}

/// Takes what the guardian has added out of an environment, and returns its number; `None` where there is no guardian.
pub fn take_guardian(env: &mut Vec<(OsString, OsString)>) -> Option<u32> {
    let at = env
        .iter()
        .position(|(name, _)| name == OsStr::new(GUARDIAN_VARIABLE))?;
    let guardian = env.swap_remove(at).1.to_str()?.parse().ok();
    env.retain(|(name, value)| name != ALLOCATOR.0 || value != ALLOCATOR.1);
    guardian
}

async fn stay(mut command: Command, relay: Option<Relay>) -> io::Result<u8> {
    // Everything is listened to before there is anybody to hand it to, so that nothing is lost.
    let mut ended = signal(SignalKind::child())?;
    let (sender, mut signals) = tokio::sync::mpsc::channel(HANDED_ON.len());
    for (kind, number) in HANDED_ON {
        let mut stream = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() && sender.send(number).await.is_ok() {}
        });
    }
    if let Some(relay) = relay {
        tokio::spawn(relay.run());
    }
    let daemon = command.spawn()?.id();
    let code = loop {
        tokio::select! {
            // An ended daemon takes no more signals.
            biased;
            _ = ended.recv() => {
                if let Some(status) = wait4::try_wait4_pid(daemon)? {
                    let signal = status.status.signal().map(|signal| 128 + signal);
                    break status.status.code().or(signal).unwrap_or(1);
                }
                reap_all_but(daemon);
            }
            Some(signal) = signals.recv() => hand_on(daemon, signal),
        }
    };
    end_everything().await;
    Ok(u8::try_from(code).unwrap_or(1))
}

fn hand_on(daemon: u32, signal: Signal) {
    // The daemon has not been reaped, so the number is still its own.
    if let Some(Err(error)) = as_pid(daemon).map(|pid| kill_process(pid, signal)) {
        tracing::debug!(%error, "a signal could not be handed on");
    }
}

/// Reaps orphans that were passed to this process, each by its number: the daemon's status is not theirs to take.
fn reap_all_but(daemon: u32) {
    for pid in own_children().filter(|pid| *pid != daemon) {
        reap(pid);
    }
}

fn reap(pid: u32) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    if let Some(Err(error)) = as_pid(pid).map(|pid| waitid(WaitId::Pid(pid), options)) {
        tracing::debug!(%error, pid, "an orphan could not be reaped");
    }
}

fn own_children() -> impl Iterator<Item = u32> {
    let me = std::process::id();
    let entries = table::snapshot(&HashSet::new()).entries.into_iter();
    entries
        .filter(move |entry| entry.ppid == me)
        .map(|entry| entry.pid)
}

/// Kills whatever has this process for its parent, round by round: the children of the killed come next.
async fn end_everything() {
    let until = Instant::now() + SETTLE;
    while children::any() && Instant::now() < until {
        // A child's number stays its own until it is reaped here.
        let pids: Vec<Pid> = own_children().filter_map(as_pid).collect();
        for signal in [Signal::STOP, Signal::KILL] {
            for pid in &pids {
                if let Err(error) = kill_process(*pid, signal) {
                    tracing::debug!(%error, "an orphan cannot be signalled");
                }
            }
        }
        own_children().for_each(reap);
        tokio::time::sleep(ROUND).await;
    }
}

#[cfg(test)]
mod tests;
