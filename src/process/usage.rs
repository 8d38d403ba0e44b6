//! What a command used, as far as the kernel's figures can be believed.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, getrlimit};

use super::table;

/// The highest peak of this process seen so far.
static OWN_PEAK: AtomicU64 = AtomicU64::new(0);

/// Returns a child's peak memory where it says something: up to this process's own peak the figure repeats that, since
/// a child begins in its parent's memory (getrusage(2) counts what was before `execve`).
pub(super) fn beyond_own_peak(max_rss_bytes: u64) -> Option<u64> {
    if max_rss_bytes <= OWN_PEAK.load(Ordering::Relaxed) {
        return None;
    }
    let own = table::own_peak_bytes()?;
    OWN_PEAK.fetch_max(own, Ordering::Relaxed);
    (max_rss_bytes > own).then_some(max_rss_bytes)
}

/// What this process uses now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnUsage {
    /// Resident memory in bytes.
    pub resident_bytes: Option<u64>,
    /// Open descriptors.
    pub descriptors: Option<u64>,
    /// Descriptors that may be open.
    pub most_descriptors: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
}

/// Looks at what this process uses; what `/proc` does not tell is missing.
pub fn own_usage() -> OwnUsage {
    OwnUsage {
        resident_bytes: table::own_resident_bytes(),
        descriptors: table::own_descriptors(),
        most_descriptors: getrlimit(Resource::Nofile).current,
        threads: table::own_threads(),
    }
}
