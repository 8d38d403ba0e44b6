//! The commands of one session, and what they left running.
//!
//! It must never forget a process that a command left behind before it has ended.

use std::collections::BTreeMap;
use std::ffi::{CString, NulError, OsString};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::task::{JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::children::{SpawnError, Spawned, Tag};
use super::functions::Login;
use super::launch::Launch;
use super::pipes::{Pipes, WritingEnds};
use super::spec::{self, Spec};
use super::supervise::{Finished, Surroundings, end, supervise};
use super::tree::Tree;
use super::{Shared, children};
use crate::limits::Limits;
use crate::near::Near;
use crate::progress::Progress;
use crate::stop::{Stop, StopCause};
use crate::workspace::Workspace;

/// The commands of one session, and what they left running.
#[derive(Debug, Clone)]
pub struct SessionProcesses(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    env: Vec<(OsString, OsString)>,
    /// Given when the session closes; its running commands end.
    pub(super) closing: CancellationToken,
    /// Given when its processes have ended; nobody reads their pipes any more.
    gone: CancellationToken,
    running: TaskTracker,
    /// Calls that left something, with the number of processes that each was last seen with.
    left: Mutex<Vec<(Tree, usize)>>,
    /// Processes of running commands that the close has ended.
    killed: AtomicU64,
}

/// What a command takes from its call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// Where whole outputs are kept.
    pub(crate) workspace: Workspace,
    /// Ends the command early.
    pub(crate) stop: Stop,
    /// Hears the output.
    pub(crate) progress: Progress,
    /// The bounds.
    pub(crate) limits: Arc<Limits>,
    /// Watches the command as long as it may be a brief one.
    pub(crate) near: Option<Near>,
}

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// There is no bash.
    #[error("there is no bash on this machine")]
    NoShell,
    /// The session is full.
    #[error(
        "{0} background processes of this session are running, and no more than {1} are allowed"
    )]
    TooManyBackground(usize, usize),
    /// The directory may not be entered.
    #[error("the working directory may not be entered")]
    Directory(#[source] io::Error),
    /// The directory is not there any more.
    #[error("the working directory has been deleted")]
    Deleted,
    /// The kernel took the command and its environment together for too much.
    #[error(
        "the environment is too large: the kernel takes 128 KiB for one variable and about 2 MiB for all"
    )]
    TooLarge,
    /// It was never started, for another reason.
    #[error("the command could not be started")]
    NotStarted(#[source] io::Error),
    /// It was started and could not be watched to its end.
    #[error("the command could not be watched")]
    Unwatched(#[source] io::Error),
}

impl SessionProcesses {
    pub(super) fn new(shared: Arc<Shared>, env: Vec<(OsString, OsString)>) -> Self {
        Self(Arc::new(Inner {
            shared,
            env,
            closing: CancellationToken::new(),
            gone: CancellationToken::new(),
            running: TaskTracker::new(),
            left: Mutex::default(),
            killed: AtomicU64::new(0),
        }))
    }

    /// Runs a command to its end. Where the future is dropped, the command is cancelled.
    pub(crate) fn run(
        &self,
        call: Call,
        spec: Spec,
    ) -> impl Future<Output = Result<Finished, RunError>> + Send + use<> {
        let stop = call.stop.clone();
        let run = run(Arc::clone(&self.0), call, spec);
        Attended {
            run: Some(Box::pin(self.0.running.track_future(run))),
            stop,
        }
    }

    /// Returns how many background processes the session has, as last counted.
    pub fn background(&self) -> usize {
        self.0.last_count()
    }

    /// Ends the running commands and counts what is ended with them from now on. [`Self::close`] does the rest.
    pub fn begin_close(&self) {
        self.0.closing.cancel();
        self.0.running.close();
    }

    /// Ends everything the session's calls left running; returns how many processes were ended.
    pub async fn close(&self) -> u64 {
        let inner = &self.0;
        let limits = &inner.shared.limits;
        self.begin_close();
        // Each running command is bounded by grace and settling by itself; this bound is a second net.
        let bound = limits.kill_grace + limits.kill_settle + limits.blocking_grace;
        let running = tokio::time::timeout(bound, inner.running.wait());
        let (mut killed, running) = tokio::join!(inner.end_left(), running);
        if running.is_err() {
            tracing::error!("commands of a closed session have not ended");
        }
        // A command that was just ending may have left something meanwhile.
        killed += inner.end_left().await;
        inner.gone.cancel();
        killed + inner.killed.load(Ordering::Acquire)
    }
}

/// A command that its caller attends to. Dropped before its end, it is cancelled and goes on in a task of its own, since what it
/// owns must be put away.
struct Attended<F: Future<Output: Send> + Send + 'static> {
    run: Option<Pin<Box<F>>>,
    stop: Stop,
}

impl<F: Future<Output: Send> + Send + 'static> Future for Attended<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // Taken out for the moment, so that one that panics is not gone on with.
        let Some(mut run) = self.run.take() else {
            return Poll::Pending;
        };
        let polled = run.as_mut().poll(cx);
        if polled.is_pending() {
            self.run = Some(run);
        }
        polled
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Attended<F> {
    fn drop(&mut self) {
        if let Some(run) = self.run.take()
            && let Ok(runtime) = Handle::try_current()
        {
            self.stop.trigger(StopCause::Cancelled);
            drop(runtime.spawn(run));
        }
    }
}

async fn run(inner: Arc<Inner>, call: Call, spec: Spec) -> Result<Finished, RunError> {
    let shared = Arc::clone(&inner.shared);
    let shell = shared.shell.as_deref().ok_or(RunError::NoShell)?;
    inner.check_room().await?;
    let login = shared.login.get(shell).await;
    let links = rustix::fs::fstat(&spec.cwd).map_or(0, |stat| stat.st_nlink);
    if links == 0 {
        return Err(RunError::Deleted);
    }
    let (pipes, writing) = Pipes::open(call.near.as_ref()).map_err(RunError::NotStarted)?;
    let tag = Tag::new();
    let spawned = inner
        .start(shell, &spec, &login, &writing, tag)
        .map_err(|error| refusal(error, &spec))?;
    let pid = spawned.pid;
    let around = Surroundings {
        session: Arc::clone(&inner),
        workspace: call.workspace,
        stop: call.stop,
        progress: call.progress,
        limits: call.limits,
        near: call.near,
    };
    match supervise(spawned, (pipes, writing), tag, spec.timeout, around).await {
        Ok(finished) => {
            if inner.closing.is_cancelled() {
                inner.killed.fetch_add(finished.killed, Ordering::AcqRel);
            }
            Ok(finished)
        }
        Err(error) => {
            // Whatever could not be watched must not run on.
            let mut tree = Tree::new(tag, pid).with_shell();
            let killed = spawn_blocking(move || tree.kill_round().len()).await;
            tracing::error!(%error, ?killed, "a command could not be watched and was killed");
            children::abandon(pid);
            shared.watch_orphans();
            Err(RunError::Unwatched(error))
        }
    }
}

fn refusal(error: SpawnError, spec: &Spec) -> RunError {
    let error = match error {
        SpawnError::NotStarted(error) => error,
        SpawnError::Unwatched(error) => {
            tracing::warn!(%error, "a command could not be watched and was ended");
            return RunError::Unwatched(error);
        }
    };
    if error.raw_os_error() == Some(rustix::io::Errno::TOOBIG.raw_os_error()) {
        return RunError::TooLarge;
    }
    let flags = rustix::fs::AtFlags::EACCESS;
    let may_enter = rustix::fs::accessat(&spec.cwd, ".", rustix::fs::Access::EXEC_OK, flags);
    if may_enter.is_err() {
        return RunError::Directory(error);
    }
    tracing::warn!(%error, "a command could not be started");
    RunError::NotStarted(error)
}

impl Inner {
    /// Starts bash on a command. What its directory is called, bash asks the kernel: told by `PWD`, it would look at each part of that.
    fn start(
        &self,
        shell: &Path,
        spec: &Spec,
        login: &Login,
        writing: &WritingEnds,
        tag: Tag,
    ) -> Result<Spawned, SpawnError> {
        let not_started = |error: NulError| SpawnError::NotStarted(error.into());
        let given = self.env.iter().chain(&spec.env);
        let given = given.map(|(name, value)| (name.as_os_str(), value.as_os_str()));
        let above: BTreeMap<_, _> = given.collect();
        let login = login.for_command(&spec.command, above.keys().copied());
        let env = login.under(&above).map_err(not_started)?;
        let (command, stdin) = spec::told(&spec.command).map_err(SpawnError::NotStarted)?;
        let called = CString::new(shell.as_os_str().as_bytes()).map_err(not_started)?;
        let launch = Launch {
            program: shell,
            // Called by its path, it need not look for itself in every directory of `PATH`; what it calls itself comes last.
            args: &[&called, c"-c", c"--", &command, c"bash"],
            env: &env,
            directory: spec.cwd.as_fd(),
            stdin,
            outputs: [writing.stdout.as_fd(), writing.stderr.as_fd()],
        };
        children::spawn(launch, tag)
    }

    fn left(&self) -> MutexGuard<'_, Vec<(Tree, usize)>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what calls have left running.
    async fn end_left(&self) -> u64 {
        let mut ends = JoinSet::new();
        let left = std::mem::take(&mut *self.left());
        for (tree, _) in left {
            let limits = Arc::clone(&self.shared.limits);
            ends.spawn(async move { end(tree, None, &limits).await });
        }
        let mut killed = 0;
        while let Some(ended) = ends.join_next().await {
            match ended.map_err(io::Error::other).flatten() {
                Ok((_, count, _)) => killed += count,
                Err(error) => tracing::error!(%error, "background processes could not be ended"),
            }
        }
        killed
    }

    fn last_count(&self) -> usize {
        self.left().iter().map(|(_, count)| count).sum()
    }

    /// Returns how many more background processes the session may keep.
    pub(super) fn room_for_background(&self) -> usize {
        self.shared
            .limits
            .max_background
            .saturating_sub(self.last_count())
    }

    /// Keeps what a call left running until the session ends.
    pub(super) fn keep(&self, tree: Tree, count: usize) {
        self.left().push((tree, count));
    }

    /// Goes on reading pipes that background processes still write to.
    pub(super) fn discard(self: &Arc<Self>, pipes: Pipes) {
        let inner = Arc::clone(self);
        // Not among the commands: it ends when the session's processes are gone, not before.
        tokio::spawn(async move {
            let chunk = inner.shared.limits.pipe_chunk_bytes;
            inner.gone.run_until_cancelled(pipes.discard(chunk)).await;
        });
    }

    /// Refuses a command where the session is full, after looking whether that is still true.
    async fn check_room(self: &Arc<Self>) -> Result<(), RunError> {
        let max = self.shared.limits.max_background;
        if self.last_count() < max {
            return Ok(());
        }
        let inner = Arc::clone(self);
        let recounted = spawn_blocking(move || {
            let mut left = inner.left();
            for (tree, count) in left.iter_mut() {
                *count = tree.alive().len();
            }
            left.retain(|(_, count)| *count > 0);
        });
        recounted
            .await
            .map_err(io::Error::other)
            .map_err(RunError::NotStarted)?;
        let count = self.last_count();
        if count < max {
            Ok(())
        } else {
            Err(RunError::TooManyBackground(count, max))
        }
    }
}
