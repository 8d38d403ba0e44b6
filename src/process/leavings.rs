//! What commands leave in this process's hands: pipes and handles, put away when nobody waits.
//!
//! Where one processor does everything in turn, what comes after a result keeps the harness from reading it. So they are gathered
//! for a moment; they must never be so many that a command finds no descriptor.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::net::unix::pipe;

use super::pipes::{Pipes, WritingEnds};
use super::session::Inner;

/// How long they are gathered.
const GATHER: Duration = Duration::from_millis(10);

/// Commands whose leavings are kept at most, at five descriptors each.
const MOST: u64 = 10;

/// Of as many descriptors one command's leavings may be kept.
const DESCRIPTORS: u64 = 64;

/// What one command has left.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) session: Arc<Inner>,
    pub(super) handle: pipe::Receiver,
    pub(super) pipes: Pipes,
    pub(super) writing: Option<WritingEnds>,
}

/// What was gathered.
#[derive(Debug, Default)]
pub(super) struct Leavings(Mutex<Gathered>);

#[derive(Debug, Default)]
struct Gathered {
    leavings: Vec<Leaving>,
    /// Whether somebody comes for them.
    awaited: bool,
}

impl Leaving {
    fn put_away(self) {
        drop(self.handle);
        match self.pipes.close(self.writing) {
            Ok(None) => {}
            // Handed to somebody outside of the command's own processes.
            Ok(Some(pipes)) => self.session.discard(pipes),
            Err(error) => tracing::debug!(%error, "a command's pipes were closed in use"),
        }
    }
}

impl Leavings {
    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it put away soon.
    pub(super) fn put(self: &Arc<Self>, leaving: Leaving) {
        let mut gathered = self.gathered();
        if gathered.leavings.len() >= most() {
            drop(gathered);
            return leaving.put_away();
        }
        gathered.leavings.push(leaving);
        if !std::mem::replace(&mut gathered.awaited, true) {
            drop(gathered);
            tokio::spawn(Arc::clone(self).put_away());
        }
    }

    /// Puts away what is gathered until nothing comes any more.
    async fn put_away(self: Arc<Self>) {
        loop {
            tokio::time::sleep(GATHER).await;
            let mut gathered = self.gathered();
            let leavings = std::mem::take(&mut gathered.leavings);
            gathered.awaited = !leavings.is_empty();
            drop(gathered);
            if leavings.is_empty() {
                return;
            }
            leavings.into_iter().for_each(Leaving::put_away);
        }
    }
}

fn most() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from((descriptors / DESCRIPTORS).min(MOST)).unwrap_or_default()
}
