//! A command from its start until its shell has ended, or must end.
//!
//! It must never burden the thread of the connections for longer than that is lent.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::select;
use tokio::time::sleep;

use super::output::Output;
use super::pipes::{Pipes, go_along};
use super::supervise::Surroundings;
use crate::near::Near;
use crate::stop::StopCause;

/// Why a command must end before its shell does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Early {
    /// Its call was told to stop.
    Stop(StopCause),
    /// Its time is over.
    Timeout,
}

/// A running command's handle and output.
#[derive(Debug)]
pub(super) struct Watched {
    /// Becomes readable when the shell has ended.
    pub(super) shell: pipe::Receiver,
    pub(super) output: Output,
    /// Watches both, as long as the command may be a brief one.
    pub(super) near: Option<Near>,
}

impl Watched {
    /// Has a command that has been started watched, where that is lent by the thread near it.
    pub(super) fn new(handle: OwnedFd, pipes: Pipes, around: &Surroundings) -> io::Result<Self> {
        let near = around.near.clone();
        let watcher = near.as_ref().map(Near::watches);
        // No pipe, but it becomes readable like one.
        let shell = pipe::Receiver::from_owned_fd_unchecked(handle)?;
        drop(watcher);
        let output = Output::new(
            pipes,
            around.progress.clone(),
            around.workspace.clone(),
            around.limits.clone(),
        );
        Ok(Self {
            shell,
            output,
            near,
        })
    }

    /// Takes the output until the shell has ended, or must end.
    pub(super) async fn until_the_end(
        mut self,
        timeout: Duration,
        around: &Surroundings,
    ) -> io::Result<(Self, Option<Early>)> {
        let mut timeout = pin!(sleep(timeout));
        let mut stopped = pin!(around.stop.stopped());
        let mut closing = pin!(around.session.closing.cancelled());
        let early = loop {
            if self.near.as_ref().is_some_and(Near::is_over) {
                self = self.go_along()?;
            }
            select! {
                // Who ends the command comes before the output, which may never pause.
                biased;
                cause = &mut stopped => break Some(Early::Stop(cause)),
                () = &mut closing => break Some(Early::Stop(StopCause::SessionClosed)),
                () = &mut timeout => break Some(Early::Timeout),
                _ = self.shell.readable() => break None,
                () = self.output.step() => {}
            }
        };
        Ok((self, early))
    }

    /// Leaves the thread that was lent, for the current runtime.
    pub(super) fn go_along(self) -> io::Result<Self> {
        if self.near.is_none() {
            return Ok(self);
        }
        Ok(Self {
            shell: go_along(self.shell)?,
            output: self.output.go_along()?,
            near: None,
        })
    }
}
