//! The admin port: `/livez`, `/readyz` and `/metrics` over HTTP, for probes and Prometheus.
//!
//! It has a thread of its own, so that neither calls nor connections delay an answer, and takes nothing but a short head
//! from a client: a slow or broken one holds up nobody. It only looks; nothing here changes the daemon.

mod pages;
mod prometheus;
mod ready;
mod serve;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tokio::runtime::Builder;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::dispatch::Hub;
use crate::limits::Limits;

/// A bound admin port that does not answer yet.
#[derive(Debug)]
pub struct AdminPort {
    listener: TcpListener,
    address: SocketAddr,
}

/// Why the admin port cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}; choose another with --admin-listen")]
pub struct AdminError {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

/// The running admin port. Dropped, it closes with all its connections.
#[derive(Debug)]
pub struct AdminThread {
    _stop: DropGuard,
}

impl AdminPort {
    /// Binds the address.
    ///
    /// # Errors
    /// [`AdminError`] where that is not possible.
    pub fn bind(address: SocketAddr) -> Result<Self, AdminError> {
        let failed = |source| AdminError { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Returns the address with its true port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers from now on, about a hub.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(self, hub: Hub, limits: &Arc<Limits>) -> io::Result<AdminThread> {
        let stop = CancellationToken::new();
        let (stopped, limits) = (stop.clone(), Arc::clone(limits));
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()?;
        std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || {
                let served = async {
                    tokio::select! {
                        served = serve::serve(self.listener, hub, &limits) => served,
                        () = stopped.cancelled() => Ok(()),
                    }
                };
                if let Err(error) = runtime.block_on(served) {
                    tracing::error!(%error, "the admin port has failed");
                }
                // A look at a hung mount must not hold up the exit.
                runtime.shutdown_background();
            })?;
        Ok(AdminThread {
            _stop: stop.drop_guard(),
        })
    }
}
