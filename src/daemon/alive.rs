//! Shows to whoever watches over the daemon that it lives: only while every part of it that a call needs gets its turn.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::net::Pulse;

/// What is done each time that the daemon has proved to live, and how often it has to prove it.
pub(super) struct Alive {
    pub(super) every: Duration,
    pub(super) show: Box<dyn Fn() + Send>,
}

impl std::fmt::Debug for Alive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alive")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

/// Has the daemon prove that it lives, for ever. To be run beside the connections, on the thread of the upkeep.
#[expect(clippy::infinite_loop, reason = "it ends with the daemon")]
pub(super) async fn prove(alive: Option<Alive>, connections: Pulse) {
    let Some(Alive { every, show }) = alive else {
        return std::future::pending().await;
    };
    let mut tick = interval(every);
    // After a long sleep of the machine one proof is enough.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        // A part that is late is asked again at the next tick: one missed proof leaves the watcher time for another.
        let connections = timeout(every, connections.beat()).await;
        // The work of calls is spread over threads like this task: it runs only where one of them is free.
        let calls = timeout(every, tokio::spawn(async {})).await;
        if !connections.unwrap_or(false) {
            tracing::error!("the thread of the connections does not answer");
        } else if !calls.is_ok_and(|ran| ran.is_ok()) {
            tracing::error!("the threads that calls run on do not answer");
        } else {
            show();
        }
    }
}
