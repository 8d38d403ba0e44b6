//! Times of several contenders taken in turns, so that all of them meet the same machine.

use std::time::{Duration, Instant};

/// Something to be timed; it says itself what of it counts.
pub(crate) type Lane<'a> = Box<dyn FnMut() -> Duration + 'a>;

/// Times that a short piece of work is done in one turn.
const BLOCK: usize = 10;

/// How a lane's turn goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Once: what is long brings its own caches.
    Long,
    /// Several times after one that does not count: what is short would otherwise be timed with the caches and the
    /// sleeping processor that the lane before left.
    Short,
}

/// Takes about `times` times of each lane, in turns, and returns their medians in milliseconds.
pub(crate) fn in_turns(turn: Turn, times: usize, lanes: &mut [Lane<'_>]) -> Vec<f64> {
    let block = if turn == Turn::Short { BLOCK } else { 1 };
    let mut taken = vec![Vec::with_capacity(times + block); lanes.len()];
    // The first round of long ones only warms.
    let warms = usize::from(turn == Turn::Long);
    for round in 0..times.div_ceil(block) + warms {
        for (lane, taken) in lanes.iter_mut().zip(&mut taken) {
            if turn == Turn::Short {
                lane();
            }
            let times = (0..block).map(|_| lane());
            if round < warms {
                times.for_each(drop);
            } else {
                taken.extend(times);
            }
        }
    }
    taken.iter_mut().map(|times| median_ms(times)).collect()
}

/// Times a piece of work.
pub(crate) fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

/// Returns the median in milliseconds.
pub(crate) fn median_ms(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1_000.0
}
