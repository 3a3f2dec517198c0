//! The event queue: a 4-ary heap of packed keys, ordered by time.

/// What happens at an event's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The core finished what it runs.
    CoreDone(u32),
    /// The drive finished a command.
    DriveDone(u16),
    /// A closed-loop slot sends its next request.
    Slot(u32),
    /// Steady background work has accrued.
    Background,
    /// The power state last written to this drive is in force.
    PowerState(u16),
}

impl Event {
    fn pack(self) -> u64 {
        match self {
            Self::CoreDone(core) => u64::from(core),
            Self::DriveDone(drive) => 1 << 60 | u64::from(drive),
            Self::Slot(slot) => 2 << 60 | u64::from(slot),
            Self::Background => 3 << 60,
            Self::PowerState(drive) => 4 << 60 | u64::from(drive),
        }
    }
    fn unpack(bits: u64) -> Self {
        let low = bits as u32;
        match bits >> 60 {
            0 => Self::CoreDone(low),
            1 => Self::DriveDone(low as u16),
            2 => Self::Slot(low),
            3 => Self::Background,
            _ => Self::PowerState(low as u16),
        }
    }
}

/// Pending events. Those of one instant come in the order of their packed form, so that the
/// order never depends on how they were inserted.
#[derive(Debug, Default)]
pub(super) struct Events(Heap);

impl Events {
    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.0.push(at, event.pack());
    }
    /// The time of the next event; the end of time when there is none.
    pub(super) fn next_time(&self) -> u64 {
        self.0.next_time()
    }
    pub(super) fn pop(&mut self) -> Option<Event> {
        self.0.pop().map(Event::unpack)
    }
}

/// A 4-ary heap of values by time, then by value.
#[derive(Debug, Default)]
pub(super) struct Heap {
    /// Time in the high half, value in the low half.
    keys: Vec<u128>,
}

const ARITY: usize = 4;

impl Heap {
    pub(super) fn push(&mut self, at: u64, value: u64) {
        let key = u128::from(at) << 64 | u128::from(value);
        let mut hole = self.keys.len();
        self.keys.push(key);
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if self.keys[parent] <= key {
                break;
            }
            self.keys[hole] = self.keys[parent];
            hole = parent;
        }
        self.keys[hole] = key;
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
    /// The least time; the end of time when there is none.
    pub(super) fn next_time(&self) -> u64 {
        self.keys.first().map_or(u64::MAX, |key| (key >> 64) as u64)
    }

    pub(super) fn pop(&mut self) -> Option<u64> {
        let top = *self.keys.first()?;
        let last = self.keys.pop()?;
        if !self.keys.is_empty() {
            self.sift_down(last);
        }
        Some(top as u64)
    }

    /// Puts `key` in place of the top.
    fn sift_down(&mut self, key: u128) {
        let keys = self.keys.as_mut_slice();
        let len = keys.len();
        let mut hole = 0;
        loop {
            let first = hole * ARITY + 1;
            if first >= len {
                break;
            }
            let least = match keys.get(first..first + ARITY) {
                // A tournament without branches: which child is least cannot be predicted.
                Some(four) => {
                    let left = usize::from(four[1] < four[0]);
                    let right = 2 + usize::from(four[3] < four[2]);
                    first + left + (right - left) * usize::from(four[right] < four[left])
                }
                None => (first..len).min_by_key(|child| keys[*child]).unwrap_or(first),
            };
            let least_key = keys[least];
            if least_key >= key {
                break;
            }
            keys[hole] = least_key;
            hole = least;
        }
        keys[hole] = key;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_survive_packing() {
        let all = [
            Event::CoreDone(u32::MAX),
            Event::DriveDone(u16::MAX),
            Event::Slot(7),
            Event::Background,
            Event::PowerState(1023),
        ];
        for event in all {
            assert_eq!(Event::unpack(event.pack()), event);
        }
    }

    proptest! {
        #[test]
        fn events_come_out_in_time_order(times in prop::collection::vec(0u64..1000, 0..300)) {
            let mut events = Events::default();
            for (index, at) in times.iter().enumerate() {
                events.push(*at, Event::Slot(index as u32));
            }
            let mut sorted: Vec<_> = times.iter().copied().zip(0u32..).collect();
            sorted.sort_unstable();
            for (at, index) in sorted {
                prop_assert_eq!(events.next_time(), at);
                prop_assert_eq!(events.pop(), Some(Event::Slot(index)));
            }
            prop_assert_eq!(events.pop(), None);
        }
    }
}
