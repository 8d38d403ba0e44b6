//! What a daemon counts about itself: atomics that any room adds to.
//!
//! Adding takes some nanoseconds, waits for nobody and keeps no sample, so that counting can stand on the path of a call.
//! Nothing a peer writes becomes a name or a label here. The `metrics` facade is not used: its recorder is one for the whole
//! process, and its Prometheus exporter keeps every sample of a histogram until somebody asks.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::wire::{ErrorCode, Outcome};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns it.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the buckets of call durations, in milliseconds: from a read of a small file to the longest `bash`.
pub const BUCKETS_MS: [u64; 16] = [
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 60_000, 600_000, 3_600_000,
];

/// How often durations fell into each bucket.
#[derive(Debug, Default)]
pub struct Histogram {
    /// One more than there are bounds: the last takes what is longer than all of them.
    buckets: [Counter; BUCKETS_MS.len() + 1],
    sum_us: Counter,
}

impl Histogram {
    /// Takes one duration.
    pub fn record(&self, duration: Duration) {
        let bucket = BUCKETS_MS.partition_point(|most| Duration::from_millis(*most) < duration);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.add(1);
        }
        self.sum_us
            .add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    /// Returns how many were at most as long as each bound, and how many there were in all.
    pub fn cumulative(&self) -> [u64; BUCKETS_MS.len() + 1] {
        let mut total = 0;
        self.buckets.each_ref().map(|bucket| {
            total += bucket.get();
            total
        })
    }

    /// Returns the sum of all.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us.get())
    }
}

/// The calls of one tool.
#[derive(Debug, Default)]
pub struct ToolCalls {
    /// Answers by outcome, in the order of [`Outcome::ALL`].
    outcomes: [Counter; Outcome::ALL.len()],
    /// Those that succeeded with an error that the model is to see.
    pub errors: Counter,
    /// From receipt to the queued answer.
    pub durations: Histogram,
}

impl ToolCalls {
    /// Counts one answer.
    pub fn ended(&self, outcome: Outcome, is_error: bool, took: Duration) {
        if let Some(counter) = self.outcomes.get(outcome as usize) {
            counter.add(1);
        }
        self.errors
            .add(u64::from(is_error && outcome == Outcome::Succeeded));
        self.durations.record(took);
    }

    /// Returns how many ended so.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(outcome as usize).map_or(0, Counter::get)
    }
}

/// What has to be counted about the journal; its room adds to this.
#[derive(Debug, Default)]
pub struct JournalCounts {
    on_disk: AtomicU8,
    /// Records written since the start.
    pub records: Counter,
    /// Bytes written since the start.
    pub bytes: Counter,
    /// Records that could not be written.
    pub errors: Counter,
}

impl JournalCounts {
    /// Says whether records go to a disk; until then they are kept in memory.
    pub fn set_on_disk(&self, on_disk: bool) {
        self.on_disk.store(u8::from(on_disk), Ordering::Relaxed);
    }

    /// Returns whether records go to a disk.
    pub fn is_on_disk(&self) -> bool {
        self.on_disk.load(Ordering::Relaxed) == 1
    }
}

/// The counters of one daemon.
#[derive(Debug)]
pub struct Metrics {
    started: SystemTime,
    /// Calls by tool, in the order of the tools; the last are those of a tool that does not exist.
    tools: Box<[ToolCalls]>,
    /// Calls that were not run, by the code of their answer, in the order of [`ErrorCode::ALL`].
    refused: [Counter; ErrorCode::ALL.len()],
    /// Bytes read from connections after their handshake.
    pub received_bytes: Counter,
    /// Bytes written to connections after their handshake.
    pub sent_bytes: Counter,
    /// Progress that was dropped because a harness or its lane did not keep up.
    pub dropped_progress_bytes: Counter,
    /// Harness connections that were made.
    pub connections: Counter,
    /// Connections that were refused or did not finish their handshake.
    pub refused_connections: Counter,
    /// Connections to the harness after the first one (`connect`).
    pub reconnects: Counter,
    /// Attempts to dial the harness that failed (`connect`).
    pub dial_failures: Counter,
    /// The journal.
    pub journal: JournalCounts,
}

impl Metrics {
    /// Makes counters for a number of tools.
    pub fn new(tools: usize) -> Self {
        Self {
            started: SystemTime::now(),
            tools: (0..=tools).map(|_| ToolCalls::default()).collect(),
            refused: Default::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            dropped_progress_bytes: Counter::default(),
            connections: Counter::default(),
            refused_connections: Counter::default(),
            reconnects: Counter::default(),
            dial_failures: Counter::default(),
            journal: JournalCounts::default(),
        }
    }

    /// Returns the calls of a tool by its number; `None` stands for every tool that does not exist.
    pub fn tool(&self, number: Option<usize>) -> Option<&ToolCalls> {
        let unknown = self.tools.len().checked_sub(1)?;
        self.tools.get(number.unwrap_or(unknown))
    }

    /// Counts a call or message that was not run.
    pub fn refused(&self, code: ErrorCode) {
        if let Some(counter) = self.refused.get(code as usize) {
            counter.add(1);
        }
    }

    /// Returns how many were refused so.
    pub fn refused_count(&self, code: ErrorCode) -> u64 {
        self.refused.get(code as usize).map_or(0, Counter::get)
    }

    /// Returns the seconds from the epoch to the start.
    pub fn started_seconds(&self) -> f64 {
        let since = self.started.duration_since(UNIX_EPOCH);
        since.unwrap_or_default().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_holds_it() {
        let histogram = Histogram::default();
        for ms in [0, 1, 2, 3, 3_600_000, 3_600_001] {
            histogram.record(Duration::from_millis(ms));
        }
        let counts = histogram.cumulative();
        assert_eq!(counts[..3], [2, 3, 4]);
        assert_eq!(counts[counts.len() - 2..], [5, 6]);
        assert_eq!(histogram.sum(), Duration::from_millis(7_200_007));
    }
}
