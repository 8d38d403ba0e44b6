//! Runs a search as one blocking job and tells once a second how far it is.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use crate::limits::Limits;
use crate::stop::{Stop, StopCause};
use crate::tools::{Ctx, ToolOutput};
use crate::wire::ContentBlock;
use crate::workspace::Stopped;
use crate::workspace::walk::Tally;

/// What a blocking search job holds.
#[derive(Debug, Clone)]
pub(in crate::tools) struct Search {
    /// The bounds.
    pub(in crate::tools) limits: Arc<Limits>,
    /// Looked at once per entry and block.
    pub(in crate::tools) stop: Stop,
    /// How far it is.
    pub(in crate::tools) tally: Arc<Tally>,
}

/// Runs `job` and returns its output. Where the job hangs when it is stopped, `partial` makes one of what it has found
/// so far, if it can.
pub(in crate::tools) async fn watch(
    ctx: &Ctx,
    job: impl FnOnce(&Search) -> ToolOutput + Send + 'static,
    partial: impl FnOnce(&Search) -> Option<ToolOutput>,
) -> ToolOutput {
    let search = Search {
        limits: Arc::clone(&ctx.limits),
        stop: ctx.stop.clone(),
        tally: Arc::default(),
    };
    let seen = search.clone();
    let mut running = pin!(ctx.workspace.run_blocking(&ctx.stop, move |_| job(&search)));
    // Made once: a search that was stopped gets so long to hand over what it has.
    let mut overdue = pin!(async {
        let cause = ctx.stop.stopped().await;
        sleep(ctx.limits.search_grace).await;
        cause
    });
    let every = ctx.limits.search_progress;
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased; // A finished search is neither overdue nor reported as running.
            done = &mut running => return match done {
                Ok(output) => output,
                Err(Stopped(cause)) => without_answer(cause),
            },
            cause = &mut overdue => {
                // Before its first entry a search has nothing to show.
                let begun = seen.tally.entries.load(Ordering::Relaxed) > 0;
                let output = if begun { partial(&seen) } else { None };
                return output.unwrap_or_else(|| without_answer(cause));
            }
            _ = ticks.tick() => ctx.progress.say(describe(&seen.tally)),
        }
    }
}

/// The output where there is nothing to hand over: the search had not begun, or hangs at its beginning.
fn without_answer(cause: StopCause) -> ToolOutput {
    let note = "The search was stopped before it had an answer. Narrow the pattern or `path`.";
    ToolOutput {
        content: vec![ContentBlock::text(note)],
        ..ToolOutput::stopped(cause)
    }
}

fn describe(tally: &Tally) -> String {
    let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    format!(
        "searched {} entries, {} files, {} bytes; {} hits",
        get(&tally.entries),
        get(&tally.files),
        get(&tally.bytes),
        get(&tally.hits),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::testing::start_scratch;
    use super::*;

    #[test]
    fn a_search_that_hangs_is_answered_with_what_it_has_found() {
        let scratch = start_scratch(&[]);
        let (release, hang) = mpsc::channel::<()>();
        let stop = scratch.stop.clone();
        let job = move |search: &Search| {
            search.tally.entries.store(1, Ordering::Relaxed);
            stop.trigger(StopCause::Cancelled);
            let _released = hang.recv();
            ToolOutput::error("too late")
        };
        let partial = |_: &Search| Some(ToolOutput::error("so far"));
        let ctx = scratch.ctx();
        let output = scratch.wait(watch(&ctx, job, partial));
        assert_eq!(output, ToolOutput::error("so far"));
        drop(release);
    }
}
