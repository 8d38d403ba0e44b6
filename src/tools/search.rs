//! What glob and grep share: patterns on paths, the bounded answer, notes on what was left out, and the watch over
//! a long search.

mod braces;
mod keep;
mod notes;
mod parts;
mod pattern;
#[cfg(test)]
pub(super) mod testing;
mod watch;

pub(super) use keep::{Keep, encoded_len};
pub(super) use notes::{Skips, clip, clip_start, plural, stopped_note, total_of};
pub(super) use parts::{Part, Parts};
pub(super) use pattern::{Pattern, alternatives, literal_components};
pub(super) use watch::{Search, watch};
