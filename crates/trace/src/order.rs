//! Puts records that are nearly in order of time into it, within a window.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ebb_policy::units::Nanos;

use crate::request::Request;

/// A request waiting for earlier ones that may stand later in the file; of one instant the one
/// that stands first comes first.
struct Waiting {
    record: u64,
    request: Request,
}

impl Waiting {
    fn key(&self) -> (Nanos, u64) {
        (self.request.at, self.record)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// Requests in waiting: those that came in order in a queue, which costs nothing where a trace is
/// sorted already, and the late ones in a heap.
#[derive(Default)]
pub(crate) struct Order {
    in_order: VecDeque<Waiting>,
    late: BinaryHeap<Reverse<Waiting>>,
    records: u64,
}

impl Order {
    pub(crate) fn push(&mut self, request: Request) {
        let waiting = Waiting { record: self.records, request };
        self.records += 1;
        if self.in_order.back().is_some_and(|back| back.request.at > request.at) {
            self.late.push(Reverse(waiting));
        } else {
            self.in_order.push_back(waiting);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.late.len()
    }

    /// Takes the earliest.
    pub(crate) fn pop(&mut self) -> Option<Request> {
        let late_first = match (self.in_order.front(), self.late.peek()) {
            (Some(front), Some(Reverse(late))) => late < front,
            (front, _) => front.is_none(),
        };
        let waiting = match late_first {
            true => self.late.pop().map(|Reverse(waiting)| waiting),
            false => self.in_order.pop_front(),
        };
        waiting.map(|waiting| waiting.request)
    }

    pub(crate) fn clear(&mut self) {
        self.in_order.clear();
        self.late.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::tests::at;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn everything_comes_out_as_a_stable_sort(
            times in prop::collection::vec(0..50_u64, 0..200),
        ) {
            let mut order = Order::default();
            let mut list: Vec<_> = times
                .iter()
                .enumerate()
                .map(|(index, time)| Request { offset: index as u64, ..at(*time) })
                .collect();
            list.iter().for_each(|request| order.push(*request));
            prop_assert_eq!(order.len(), list.len());
            list.sort_by_key(|request| request.at);
            prop_assert_eq!(std::iter::from_fn(|| order.pop()).collect::<Vec<_>>(), list);
        }

        #[test]
        fn a_window_as_wide_as_the_disorder_sorts(
            jitter in prop::collection::vec(0..20_u64, 1..300),
        ) {
            let mut order = Order::default();
            let mut out = Vec::new();
            for (index, late) in jitter.iter().enumerate() {
                order.push(at(index as u64 + 20 - late));
                if order.len() > 20 {
                    out.extend(order.pop());
                }
            }
            out.extend(std::iter::from_fn(|| order.pop()));
            prop_assert_eq!(out.len(), jitter.len());
            prop_assert!(out.is_sorted_by_key(|request| request.at));
        }
    }
}
