//! The alternatives that the braces of a pattern stand for.
//!
//! Neither depth nor number is the caller's to choose: the work is bounded before it is done.

use super::pattern::BadPattern;

/// Returns the plain patterns that `text` stands for, in the order a shell gives them.
///
/// # Errors
/// [`BadPattern`] where they are more than `most`, or finding them takes more than sixteen steps for each.
pub(super) fn expand(text: &str, most: usize) -> Result<Vec<String>, BadPattern> {
    let too_many = || {
        BadPattern(format!(
            "its braces stand for more than {most} patterns; use fewer"
        ))
    };
    let mut out = Vec::new();
    let mut waiting = vec![text.to_owned()];
    let mut steps = most.saturating_mul(16);
    while let Some(next) = waiting.pop() {
        steps = steps.checked_sub(1).ok_or_else(too_many)?;
        let Some((head, middle, tail)) = first_braces(&next) else {
            if out.len() >= most {
                return Err(too_many());
            }
            out.push(next);
            continue;
        };
        if waiting.len() + middle.len() > most {
            return Err(too_many());
        }
        let replaced = middle.iter().rev();
        waiting.extend(replaced.map(|alternative| format!("{head}{alternative}{tail}")));
    }
    Ok(out)
}

/// Splits at the first braces outside of classes: what stands before, the alternatives, what stands after.
fn first_braces(text: &str) -> Option<(&str, Vec<&str>, &str)> {
    let mut open = None;
    let mut depth = 0_usize;
    let mut alternatives = Vec::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => {
                chars.next();
            }
            '[' => {
                let rest = text.get(at..).unwrap_or_default();
                if let Some(end) = class_end(rest) {
                    while chars.clone().next().is_some_and(|(i, _)| i < at + end) {
                        chars.next();
                    }
                }
            }
            '{' => {
                depth += 1;
                open = open.or(Some((at, at + 1)));
            }
            ',' if depth == 1 => {
                let (start, from) = open?;
                alternatives.push(text.get(from..at)?);
                open = Some((start, at + 1));
            }
            '}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    let (start, from) = open?;
                    alternatives.push(text.get(from..at)?);
                    return Some((text.get(..start)?, alternatives, text.get(at + 1..)?));
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the length of the class that a text begins with.
fn class_end(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('[')?;
    let inner = inner.strip_prefix(['!', '^']).unwrap_or(inner);
    let inner = inner.strip_prefix(']').unwrap_or(inner);
    let close = inner.find(']')?;
    Some(text.len() - inner.len() + close + 1)
}
