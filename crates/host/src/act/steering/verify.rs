//! Compares what is set with what is there.

use std::time::Instant;

use ebb_policy::units::Nanos;

use super::{Notice, PATIENCE, Steering};

/// What a comparison of places has found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// Places that are as they should be.
    pub compared: usize,
    /// Places that were not read: asleep, or too slow.
    pub unread: usize,
    /// Places that are otherwise.
    pub differing: Vec<Notice>,
}

impl Steering {
    /// Compares all places that are set with what they say now, but those that sleep; changes
    /// nothing. It ends in time: what is not read then is counted.
    pub fn verify(&mut self, sleeps: impl Fn(usize) -> bool, now: Nanos) -> Verified {
        let (mut verified, begun) = (Verified::default(), Instant::now());
        for at in 0..self.held.len() {
            let held = &mut self.held[at];
            let place = held.original.place.clone();
            let differs = |text: String| verified.differing.push(Notice { place, text });
            if held.yielded {
                differs("another program's until ebb starts anew".to_owned());
                continue;
            }
            if let Some((reason, _)) = &held.refused {
                differs(reason.clone());
                continue;
            }
            let (Some((set, read)), Ok(knob)) = (held.set.clone(), &mut held.knob) else {
                continue;
            };
            if sleeps(at) || begun.elapsed() >= PATIENCE {
                verified.unread += 1;
                continue;
            }
            match knob.read(&self.sys) {
                Ok(is) if is == read || is == set || self.is_as_set(at, &set, &is, now) => {
                    verified.compared += 1;
                }
                Ok(is) => differs(format!("set to '{set}', is '{is}'")),
                Err(absent) => differs(format!("'{set}' cannot be read back: {absent}")),
            }
        }
        verified
    }
}
