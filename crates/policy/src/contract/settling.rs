//! From when on what a policy makes of a steady load is what it makes of it for good.

use crate::contract::units::Nanos;

/// What a run must last for, so that its means are those of a year at this load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settling {
    /// Time from the start until it has settled.
    pub after: Nanos,
    /// Then what it does repeats itself at such distances, such as learning anew what a request
    /// takes natively; 0 where nothing does.
    pub period: Nanos,
}

/// Less than this shows nothing of anything: a few control periods, whose means are compared.
const LEAST: Nanos = Nanos::from_secs(4);

impl Settling {
    /// From the first control period on.
    pub const AT_ONCE: Self = Self { after: Nanos::ZERO, period: Nanos::ZERO };

    /// Without anything that repeats itself.
    #[must_use]
    pub const fn after(seconds: u64) -> Self {
        Self { after: Nanos::from_secs(seconds), period: Nanos::ZERO }
    }

    /// Of both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { after: self.after.max(other.after), period: self.period.max(other.period) }
    }

    /// The least length of a run whose second part counts.
    #[must_use]
    pub fn enough(&self) -> Nanos {
        self.after + self.counted()
    }

    /// What is to be counted, at least.
    #[must_use]
    pub fn counted(&self) -> Nanos {
        match *self {
            Self::AT_ONCE => Nanos::ZERO,
            Self { after, period } => after.max(period).max(LEAST),
        }
    }

    /// Whether so much that is left out and counted shows what is settled.
    #[must_use]
    pub fn shows(&self, left_out: Nanos, counted: Nanos) -> bool {
        left_out >= self.after && counted >= self.counted()
    }

    /// How much of a run of this `length` to leave out, so that whole periods are counted; nothing
    /// where it is too short to show what is settled.
    #[must_use]
    pub fn warmup(&self, length: Nanos) -> Nanos {
        let room = length.saturating_sub(self.after);
        let whole = room.0.checked_div(self.period.0).map(|count| Nanos(count * self.period.0));
        match whole.filter(|whole| *whole > Nanos::ZERO) {
            Some(whole) if self.shows(length - whole, whole) => length - whole,
            _ if room >= self.after => self.after,
            Some(whole) => length - whole,
            None => Nanos::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_periods_are_counted_once_it_has_settled() {
        let secs = Nanos::from_secs;
        let pacer = Settling { after: secs(28), period: secs(120) };
        let warmups =
            [20, 55, 56, 100, 148, 200, 268, 400].map(|s| pacer.warmup(secs(s)).0 / 1_000_000_000);
        assert_eq!(warmups, [0, 0, 28, 28, 28, 80, 28, 40]);
        assert_eq!(pacer.enough(), secs(148));
        // What is enough is so, and so is what is more, also where periods are shorter.
        for (after, period) in [(28, 120), (70, 60), (70, 0), (262, 60), (0, 0), (0, 7)] {
            let settling = Settling { after: secs(after), period: secs(period) };
            for length in (0..500).map(|more| settling.enough() + secs(more)) {
                let left_out = settling.warmup(length);
                assert!(settling.shows(left_out, length - left_out), "{settling:?} {length}");
            }
        }
        assert_eq!(Settling::AT_ONCE.warmup(secs(6)), Nanos::ZERO);
        let both = pacer.and(Settling::after(1_000));
        assert_eq!((both.warmup(secs(1_500)), both.enough()), (secs(1_020), secs(2_000)));
    }
}
