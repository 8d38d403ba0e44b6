//! Shapes of text that several tools share.

/// Returns a count with its noun, in the plural where it is not one.
pub(super) fn count(number: u64, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else if noun.ends_with('s') {
        format!("{number} {noun}es")
    } else {
        format!("{number} {noun}s")
    }
}
