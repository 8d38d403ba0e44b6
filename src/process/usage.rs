//! What a command used, as far as the kernel's figures can be believed.

use std::sync::atomic::{AtomicU64, Ordering};

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
