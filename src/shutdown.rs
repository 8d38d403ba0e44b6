//! The signals that a daemon acts on.

use std::io;

use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Stop in order; the name is for the log and the drain message.
    Stop(&'static str),
    /// Read the configuration file again.
    Reload,
}

/// The daemon's signals. From the first moment on they no longer end the process by themselves.
#[derive(Debug)]
pub struct Signals {
    terminate: SignalStream,
    interrupt: SignalStream,
    hang_up: SignalStream,
    _file_size: SignalStream,
}

impl Signals {
    /// Takes the signals over. Needs a runtime.
    ///
    /// # Errors
    /// The kernel refuses a handler.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            // A write beyond the limit on file sizes (`ulimit -f`) fails with EFBIG instead of ending the daemon. Commands
            // get the usual action back: exec(2) resets what has a handler.
            _file_size: signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    /// No signal is lost where the future is dropped.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.terminate.recv() => Signal::Stop("SIGTERM"),
            Some(()) = self.interrupt.recv() => Signal::Stop("SIGINT"),
            Some(()) = self.hang_up.recv() => Signal::Reload,
            else => std::future::pending().await,
        }
    }
}
