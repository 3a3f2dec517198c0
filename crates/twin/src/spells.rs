//! Spells: parts of a run whose energy and latencies are counted one by one.

use std::ops::Range;

use hdrhistogram::{CreationError, Histogram};

use ebb_policy::units::Nanos;

use crate::outcome::{CoreTime, Energy, Spell};
use crate::windows::WINDOW;

/// All of a run, and which one a time belongs to.
#[derive(Debug)]
pub(crate) struct Spells {
    all: Vec<Spell>,
    /// By the windows of the run.
    at: Vec<Option<u32>>,
}

impl Spells {
    /// Those between such times, which are whole windows except at the end of the run.
    ///
    /// # Errors
    /// When there is no such histogram.
    pub(crate) fn new(spans: &[Range<Nanos>]) -> Result<Self, CreationError> {
        let slots = spans.last().map_or(0, |last| last.end.0.div_ceil(WINDOW.0) as usize);
        let (mut all, mut at) = (Vec::new(), vec![None; slots]);
        for (index, span) in spans.iter().enumerate() {
            debug_assert!(span.start.0 % WINDOW.0 == 0, "a spell begins with a window");
            let slots = (span.start.0 / WINDOW.0) as usize..span.end.0.div_ceil(WINDOW.0) as usize;
            at[slots].fill(Some(index as u32));
            all.push(Spell {
                energy: Energy::default(),
                cores: CoreTime::default(),
                requests: 0,
                reads: 0,
                bytes: 0,
                latency_sum: 0,
                latency: Histogram::new(3)?,
            });
        }
        Ok(Self { all, at })
    }

    /// The one that `time` belongs to.
    #[inline]
    pub(crate) fn of(&mut self, time: u64) -> Option<&mut Spell> {
        let index = (*self.at.get((time / WINDOW.0) as usize)?)?;
        self.all.get_mut(index as usize)
    }

    pub(crate) fn finish(self) -> Vec<Spell> {
        self.all
    }
}
