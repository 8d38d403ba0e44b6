//! One thread for all connections.
//!
//! Calls run on other threads, but for what is done at a glance and the first moment of a command that finds nothing else
//! running. However many of those are busy, the kernel gives this one its turn, so that pings, cancels and refusals do not wait
//! for anybody's work.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::accept::{Access, accept};
use super::dial::Target;
use super::reconnect::keep_connected;
use crate::dispatch::Hub;
use crate::limits::Limits;

/// The running thread. Dropped, it ends with all its connections, whatever they still have to write.
#[derive(Debug)]
pub struct IoThread {
    ended: oneshot::Receiver<io::Result<()>>,
    pulse: Pulse,
    _abort: DropGuard,
}

/// Asks the thread whether it still gets its turn.
#[derive(Debug, Clone)]
pub struct Pulse(mpsc::Sender<oneshot::Sender<()>>);

impl Pulse {
    /// Waits for the thread's answer. False where it has ended, or has not answered an earlier question.
    ///
    /// # Cancel safety
    /// A question that was asked stays asked.
    pub async fn beat(&self) -> bool {
        let (answer, answered) = oneshot::channel();
        self.0.try_send(answer).is_ok() && answered.await.is_ok()
    }
}

/// Answers on the thread that is asked.
async fn answer(mut questions: mpsc::Receiver<oneshot::Sender<()>>) {
    while let Some(question) = questions.recv().await {
        if question.send(()).is_err() {
            tracing::debug!("whoever asked for a sign of life has gone");
        }
    }
}

impl IoThread {
    /// Accepts connections of `listener` until `stop`, and serves those that are left until they end.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn accept(
        listener: TcpListener,
        hub: Hub,
        access: Access,
        limits: Arc<Limits>,
        stop: CancellationToken,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Self::start(move || accept(listener, hub, access, limits, stop))
    }

    /// Keeps a connection to a harness until `stop`, and serves the last one until it ends. `connected` is called each
    /// time that one is made.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn dial(
        target: Target,
        hub: Hub,
        limits: Arc<Limits>,
        stop: CancellationToken,
        connected: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        Self::start(move || keep_connected(target, hub, limits, stop, connected))
    }

    fn start<F>(serve: impl FnOnce() -> F + Send + 'static) -> io::Result<Self>
    where
        F: Future<Output = io::Result<()>>,
    {
        let (ended_sender, ended) = oneshot::channel();
        let abort = CancellationToken::new();
        let aborted = abort.clone();
        let (asked, questions) = mpsc::channel(1);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("connections".to_owned())
            .spawn(move || {
                let result = runtime.block_on(async {
                    tokio::spawn(answer(questions));
                    tokio::select! {
                        result = serve() => result,
                        () = aborted.cancelled() => Ok(()),
                    }
                });
                if ended_sender.send(result).is_err() {
                    tracing::debug!("nobody waited for the connections to end");
                }
            })?;
        Ok(Self {
            ended,
            pulse: Pulse(asked),
            _abort: abort.drop_guard(),
        })
    }

    /// Returns what asks the thread for a sign of life.
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Waits until the last connection has ended.
    ///
    /// # Errors
    /// The listener failed, or the thread panicked.
    ///
    /// # Cancel safety
    /// The end is not lost where the future is dropped.
    pub async fn ended(&mut self) -> io::Result<()> {
        (&mut self.ended).await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_thread_that_hangs_gives_no_sign_of_life_until_it_goes_on() {
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let (hangs, hung) = std::sync::mpsc::channel();
        let thread = IoThread::start(move || async move {
            hangs.send(()).unwrap();
            wait.recv().unwrap();
            std::future::pending().await
        });
        let pulse = thread.as_ref().unwrap().pulse();
        hung.recv().unwrap();
        let beat = || timeout(Duration::from_millis(200), pulse.beat());
        let answers = [beat().await, beat().await];
        assert!(!answers.contains(&Ok(true)), "{answers:?}");
        go_on.send(()).unwrap();
        let until = tokio::time::Instant::now() + Duration::from_secs(10);
        while beat().await != Ok(true) {
            assert!(
                tokio::time::Instant::now() < until,
                "it never answers again"
            );
        }
    }
}
