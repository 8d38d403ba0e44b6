//! Times of several contenders taken in turns, so that all of them meet the same machine.

use std::time::{Duration, Instant};

/// Something to be timed; it says itself what of it counts.
pub(crate) type Lane<'a> = Box<dyn FnMut() -> Duration + 'a>;

/// Runs each lane once per round and returns their medians in milliseconds. The first round only warms.
pub(crate) fn in_turns(rounds: usize, lanes: &mut [Lane<'_>]) -> Vec<f64> {
    let mut times = vec![Vec::with_capacity(rounds); lanes.len()];
    for round in 0..=rounds {
        for (lane, times) in lanes.iter_mut().zip(&mut times) {
            let time = lane();
            if round > 0 {
                times.push(time);
            }
        }
    }
    times.iter_mut().map(|times| median_ms(times)).collect()
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
