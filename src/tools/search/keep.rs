//! The smallest answers of a search, so that a cut answer is the same every time, in bounded memory.

use std::collections::BinaryHeap;

/// Keeps the items that come first, up to a total weight, whatever order they arrive in.
#[derive(Debug)]
pub(in crate::tools) struct Keep<T> {
    heap: BinaryHeap<T>,
    weight: usize,
    limit: usize,
    weigh: fn(&T) -> usize,
}

impl<T: Ord> Keep<T> {
    /// Keeps items until those before the last weigh `limit` or more.
    pub(in crate::tools) fn new(limit: usize, weigh: fn(&T) -> usize) -> Self {
        Self {
            heap: BinaryHeap::new(),
            weight: 0,
            limit,
            weigh,
        }
    }

    /// Whether an item would be dropped at once; `after` says whether a kept item comes before it.
    pub(in crate::tools) fn would_drop(&self, before: impl Fn(&T) -> bool) -> bool {
        self.weight >= self.limit && self.heap.peek().is_none_or(before)
    }

    /// Offers an item.
    pub(in crate::tools) fn offer(&mut self, item: T) {
        self.weight += (self.weigh)(&item);
        self.heap.push(item);
        while let Some(last) = self.heap.peek() {
            let without = self.weight - (self.weigh)(last);
            if without < self.limit {
                break;
            }
            self.weight = without;
            self.heap.pop();
        }
    }

    /// Takes over what another has kept.
    pub(in crate::tools) fn absorb(&mut self, other: Self) {
        for item in other.heap {
            self.offer(item);
        }
    }

    /// Returns what was kept, in order.
    pub(in crate::tools) fn into_sorted(self) -> Vec<T> {
        self.heap.into_sorted_vec()
    }
}

/// Returns the bytes that a text takes inside a JSON string.
pub(in crate::tools) fn encoded_len(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
            0..=31 => 6,
            _ => 1,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_kept_is_the_sorted_beginning_in_any_order_and_split(
            mut items in proptest::collection::vec(0_u32..1_000, 0..60), limit in 1_usize..20, at in 0_usize..60,
        ) {
            let (left, right) = items.split_at(at.min(items.len()));
            let mut keep = Keep::new(limit, |_| 1);
            let mut other = Keep::new(limit, |_| 1);
            for &item in left {
                keep.offer(item);
            }
            for &item in right {
                other.offer(item);
            }
            keep.absorb(other);
            items.sort_unstable();
            items.truncate(limit);
            prop_assert_eq!(keep.into_sorted(), items);
        }

        #[test]
        fn the_encoded_length_is_that_of_the_encoder(text in any::<String>()) {
            prop_assert_eq!(encoded_len(&text) + 2, serde_json::to_string(&text).unwrap().len());
        }
    }
}
