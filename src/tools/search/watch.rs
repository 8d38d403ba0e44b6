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

/// Runs `job` and returns its output.
pub(in crate::tools) async fn watch(
    ctx: &Ctx,
    job: impl FnOnce(&Search) -> ToolOutput + Send + 'static,
) -> ToolOutput {
    let search = Search {
        limits: Arc::clone(&ctx.limits),
        stop: ctx.stop.clone(),
        tally: Arc::default(),
    };
    let tally = Arc::clone(&search.tally);
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
            cause = &mut overdue => return without_answer(cause),
            _ = ticks.tick() => ctx.progress.say(describe(&tally)),
        }
    }
}

/// The output where nothing was handed over: the search had not begun, or hangs in one file.
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
