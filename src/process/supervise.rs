//! One command from its start to its end: read always, ended on time, nothing left behind unknown.
//!
//! It must never wait for a pipe's end without a bound, nor reap the shell before the last signal is sent.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::select;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, Sleep, sleep};

use super::capture::Capture;
use super::children::{self, Spawned, Tag};
use super::output::Output;
use super::pipes::{MOST_HELD, Pipes, WritingEnds};
use super::session::Inner;
use super::spill::SpillReport;
use super::table::{self, Entry};
use super::tree::Tree;
use super::usage;
use super::watched::{Early, Watched};
use crate::limits::Limits;
use crate::near::Near;
use crate::progress::Progress;
use crate::stop::{Stop, StopCause};
use crate::wire::{BackgroundProcess, EndCause};
use crate::workspace::Workspace;

/// A call shorter than this has descendants with higher numbers than its shell only, bar a count that starts again.
const SHORT_LIVED: Duration = Duration::from_secs(1);

/// First and longest pause between two looks at processes that were told to end.
const LOOKS: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// Looks at a process that is just ending before it is listed nevertheless: its pipes close a moment before it is dead.
const ENDING_LOOKS: usize = 8;

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) cause: EndCause,
    pub(crate) stopped: Option<StopCause>,
    pub(crate) duration: Duration,
    pub(crate) cpu: Duration,
    pub(crate) max_rss_bytes: Option<u64>,
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
    pub(crate) spill: Option<SpillReport>,
    pub(crate) killed: u64,
    pub(crate) survived: Vec<u32>,
    pub(crate) background: Vec<BackgroundProcess>,
    /// Whether `killed` counts processes that the session had no room for.
    pub(crate) beyond_ceiling: bool,
}

/// What a command runs in.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) session: Arc<Inner>,
    pub(super) workspace: Workspace,
    pub(super) stop: Stop,
    pub(super) progress: Progress,
    pub(super) limits: Arc<Limits>,
    pub(super) near: Option<Near>,
}

/// What became of the processes of a call.
#[derive(Default)]
struct Remains {
    killed: u64,
    survived: Vec<u32>,
    background: Vec<BackgroundProcess>,
    beyond_ceiling: bool,
}

/// Watches a command that has been started until it has ended.
pub(super) async fn supervise(
    spawned: Spawned,
    (pipes, writing): (Pipes, WritingEnds),
    tag: Tag,
    timeout: Duration,
    around: Surroundings,
) -> io::Result<Finished> {
    let limits = &around.limits;
    let started = Instant::now();
    let mut tree = Tree::new(tag, spawned.pid);
    let mut writing = (spawned.running <= MOST_HELD).then_some(writing);
    let watched = Watched::new(spawned.pidfd, pipes, &around)?;
    let (mut watched, early) = watched.until_the_end(timeout, &around).await?;
    let mut remains = Remains::default();
    if early.is_some() {
        watched = watched.go_along()?;
        let ended = end(tree.with_shell(), Some(&mut watched.output), limits).await?;
        tree = ended.0;
        remains.killed = ended.1;
        remains.survived = ended.2;
    }
    let usage = children::reap(spawned.pid)?;
    if usage.is_none() {
        children::abandon(spawned.pid);
    }
    // Where it has left no process, nobody is there to say more.
    let alone = early.is_none() && !children::may_have_adopted();
    if alone {
        watched.output.take_rest().await;
    } else {
        if let Some(writing) = writing.take() {
            writing.release();
        }
        watched.output.take_last();
        if !watched.output.closed() {
            watched = watched.go_along()?;
            drain(&mut watched.output, limits).await;
        }
    }
    let duration = started.elapsed();
    let Watched {
        shell,
        output,
        near,
    } = watched;
    let (stdout, stderr, spill, pipes) = output.finish().await;
    if early.is_none() && !alone {
        remains = settle(tree, duration < SHORT_LIVED, &around).await?;
    }
    let session = Arc::clone(&around.session);
    if alone || pipes.closed() {
        put_away(near.as_ref(), session, shell, (pipes, writing));
    } else {
        session.discard(pipes);
    }
    let status = usage.as_ref().map(|usage| usage.status);
    let (cause, stopped) = cause(early, status);
    Ok(Finished {
        exit_code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
        cause,
        stopped,
        duration,
        cpu: usage
            .as_ref()
            .map(|usage| usage.rusage.utime + usage.rusage.stime)
            .unwrap_or_default(),
        max_rss_bytes: usage.and_then(|usage| usage::beyond_own_peak(usage.rusage.maxrss)),
        stdout,
        stderr,
        spill,
        killed: remains.killed,
        survived: remains.survived,
        background: remains.background,
        beyond_ceiling: remains.beyond_ceiling,
    })
}

/// Has the handle and the pipes of a command put away after its result, which is on its way once the task gives way.
fn put_away(
    near: Option<&Near>,
    session: Arc<Inner>,
    handle: pipe::Receiver,
    (pipes, writing): (Pipes, Option<WritingEnds>),
) {
    let workers = Handle::current();
    let thread = near.map_or(&workers, Near::thread).clone();
    drop(thread.spawn(async move {
        // What goes on after all is for the workers to read.
        let _workers = workers.enter();
        drop(handle);
        match pipes.close(writing) {
            Ok(None) => {}
            // Handed to somebody outside of the command's own processes.
            Ok(Some(pipes)) => session.discard(pipes),
            Err(error) => tracing::debug!(%error, "a command's pipes were closed in use"),
        }
    }));
}

/// Tells why a command ended, from what ended it early and its status.
fn cause(early: Option<Early>, status: Option<ExitStatus>) -> (EndCause, Option<StopCause>) {
    match early {
        Some(Early::Stop(cause @ (StopCause::Cancelled | StopCause::SessionClosed))) => {
            (EndCause::Cancelled, Some(cause))
        }
        Some(Early::Stop(StopCause::Deadline)) => (EndCause::Deadline, Some(StopCause::Deadline)),
        Some(Early::Stop(StopCause::Shutdown)) => (EndCause::Shutdown, Some(StopCause::Shutdown)),
        Some(Early::Timeout) => (EndCause::Timeout, None),
        None if status.is_some_and(|status| status.code().is_none()) => (EndCause::Signalled, None),
        None => (EndCause::Exited, None),
    }
}

/// Reads to the end of the pipes, or until the time is over.
async fn drain(output: &mut Output, limits: &Limits) {
    let mut until = pin!(sleep(limits.drain_grace));
    while !output.closed() {
        select! {
            // The time wins over a descendant that never stops printing.
            biased;
            () = &mut until => return output.take_last(),
            () = output.step() => {}
        }
    }
}

/// Decides about what is left when the shell has ended by itself.
async fn settle(mut tree: Tree, short_lived: bool, around: &Surroundings) -> io::Result<Remains> {
    let session = &around.session;
    if !children::may_have_adopted() {
        return Ok(Remains::default());
    }
    session.shared.watch_orphans();
    let mut left = tree.left_over(short_lived);
    for _ in 0..ENDING_LOOKS {
        if !left.iter().any(|entry| entry.ending) {
            break;
        }
        sleep(LOOKS.0).await;
        left = tree.left_over(short_lived);
    }
    if left.is_empty() {
        return Ok(Remains::default());
    }
    if !session.shared.keeps_background() {
        let (_, killed, survived) = end(tree, None, &around.limits).await?;
        return Ok(Remains {
            killed,
            survived,
            ..Remains::default()
        });
    }
    let room = session.room_for_background();
    let (kept, surplus) = left.split_at_checked(room).unwrap_or((&left, &[]));
    tree.kill_these(surplus);
    let background = kept.iter().map(describe).collect();
    session.keep(tree, kept.len());
    Ok(Remains {
        killed: surplus.len() as u64,
        background,
        beyond_ceiling: !surplus.is_empty(),
        ..Remains::default()
    })
}

fn describe(entry: &Entry) -> BackgroundProcess {
    BackgroundProcess {
        pid: entry.pid,
        command: table::command_line(entry.pid),
    }
}

/// Ends every process of a tree: asks, waits, kills. Returns how many were ended and which could not be.
pub(super) async fn end(
    tree: Tree,
    mut output: Option<&mut Output>,
    limits: &Limits,
) -> io::Result<(Tree, u64, Vec<u32>)> {
    let (mut tree, mut alive) = on_tree(tree, output.as_deref_mut(), Tree::terminate).await?;
    let mut pause = pin!(sleep(LOOKS.0));
    let mut looks = LOOKS.0;
    let grace = Instant::now() + limits.kill_grace;
    while !alive.is_empty() && Instant::now() < grace {
        rest(pause.as_mut(), &mut looks, output.as_deref_mut()).await;
        (tree, alive) = on_tree(tree, output.as_deref_mut(), Tree::terminate_late).await?;
    }
    // The time to die begins when everything found has been killed: on a busy machine one round over a storm takes
    // seconds, and who was alive at its start must not be taken for a survivor.
    let mut settled = None;
    looks = LOOKS.0;
    while !alive.is_empty() && settled.is_none_or(|settled| Instant::now() < settled) {
        (tree, _) = on_tree(tree, output.as_deref_mut(), Tree::kill_round).await?;
        settled = settled.or_else(|| Some(Instant::now() + limits.kill_settle));
        rest(pause.as_mut(), &mut looks, output.as_deref_mut()).await;
        (tree, alive) = on_tree(tree, output.as_deref_mut(), Tree::alive).await?;
    }
    // The adopted among the dead have no other parent to reap them.
    let reaped = spawn_blocking(children::reap_adopted);
    with_output(reaped, output)
        .await
        .map_err(io::Error::other)?;
    let killed = tree.killed(&alive);
    Ok((tree, killed, alive.iter().map(|entry| entry.pid).collect()))
}

/// Pauses between two looks, each pause longer than the last.
async fn rest(
    mut pause: std::pin::Pin<&mut Sleep>,
    looks: &mut Duration,
    output: Option<&mut Output>,
) {
    pause.as_mut().reset(Instant::now() + *looks);
    *looks = (*looks * 2).min(LOOKS.1);
    with_output(pause, output).await;
}

/// Looks through the process table on a thread that may take its time, while output is still read.
async fn on_tree(
    mut tree: Tree,
    output: Option<&mut Output>,
    work: impl FnOnce(&mut Tree) -> Vec<Entry> + Send + 'static,
) -> io::Result<(Tree, Vec<Entry>)> {
    let job = spawn_blocking(move || {
        let found = work(&mut tree);
        (tree, found)
    });
    with_output(job, output).await.map_err(io::Error::other)
}

/// Waits for something while output is still read.
async fn with_output<F: Future>(job: F, output: Option<&mut Output>) -> F::Output {
    let mut job = pin!(job);
    let Some(output) = output else {
        return job.await;
    };
    loop {
        select! {
            // Output may never pause.
            biased;
            done = &mut job => return done,
            () = output.step() => {}
        }
    }
}
