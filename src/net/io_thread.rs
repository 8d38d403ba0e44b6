//! One thread for all connections.
//!
//! Calls run on other threads. However many of those are busy, the kernel gives this one its turn, so that pings, cancels
//! and refusals do not wait for anybody's work.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::accept::{Access, accept};
use crate::dispatch::Hub;
use crate::limits::Limits;

/// The running thread. Dropped, it ends with all its connections, whatever they still have to write.
#[derive(Debug)]
pub struct IoThread {
    ended: oneshot::Receiver<io::Result<()>>,
    _abort: DropGuard,
}

impl IoThread {
    /// Serves connections of `listener` until `stop`, and then those that are left until they end.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        listener: TcpListener,
        hub: Hub,
        access: Access,
        limits: Arc<Limits>,
        stop: CancellationToken,
    ) -> io::Result<Self> {
        let (ended_sender, ended) = oneshot::channel();
        let abort = CancellationToken::new();
        let aborted = abort.clone();
        listener.set_nonblocking(true)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("connections".to_owned())
            .spawn(move || {
                let result = runtime.block_on(async {
                    tokio::select! {
                        result = accept(listener, hub, access, limits, stop) => result,
                        () = aborted.cancelled() => Ok(()),
                    }
                });
                if ended_sender.send(result).is_err() {
                    tracing::debug!("nobody waited for the connections to end");
                }
            })?;
        Ok(Self {
            ended,
            _abort: abort.drop_guard(),
        })
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
