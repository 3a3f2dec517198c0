//! PACER: cores and frequency follow the load as far as users' I/O latency allows.
//!
//! ```text
//!                 system stable; recalculate the baseline
//!              ┌────────────────────────────────────────────┐
//!   start ► Unstable ◄────── burst, or unstable ────────  Stable ◄─┐ Parameter Update and
//!            ▲    │            (or baseline old)            │   └──┘ adjust resources
//!            │    └─────► Idle ◄── no request for 30 s ─────┘
//!            └── request ──┘                                            (Fig. 9)
//! ```
//!
//! | file | part of the paper |
//! |---|---|
//! | `mod.rs` | the state machine, §IV-B, Fig. 9 |
//! | `window.rs` | Stability-Check's `l_i`, `l_avg`, `l_div` |
//! | `checks.rs` | Burst-Check, Idle-Check |
//! | `tune.rs` | Parameter Update, and which adaptor acts when, §IV-C |
//! | `loss.rs` | `loss_cur`, `loss_distance` |
//! | `core_adaptor.rs` | Core Adaptor: `u_desired`, `n_desired`, `α`, `β`; core groups, §IV-E |
//! | `freq_adaptor.rs` | Freq Adaptor: `f_desired`, `γ` |
//! | `ceiling.rs` | ours: the ceilings of who keeps the heat |
//! | `idle.rs` | Background Task Scheduler, §IV-D |
//! | `memory.rs` | ours: no limit cycles |
//! | `params.rs` | the hyperparameters |
//!
//! The Task Migrator (§IV-D) is the plant's: cores beyond `active` finish what they have and take
//! no new work. Groups of cores that run jobs are not PACER's: no latency says how many of them are
//! needed. Leaving Stable is printed with `l_div < l_unstable_thresh`, which contradicts the
//! prose ("exceeds") and the hysteresis; it is `>` here.

mod ceiling;
mod checks;
mod core_adaptor;
mod freq_adaptor;
mod idle;
mod loss;
mod memory;
mod params;
mod tune;
mod window;

pub(in crate::cpu) use window::{completions, utilisation};

use crate::controls::GroupControl;
use crate::registry::PolicyError;
use crate::topology::Topology;
use crate::units::{Hertz, Nanos};
use crate::{BackgroundMode, Controls, Policy, Signals};

use ceiling::Ceilings;
use checks::{BurstCheck, IdleCheck};
use core_adaptor::CoreAdaptor;
use idle::Background;
use memory::Memory;
pub use params::{Adaptors, PacerParams};
use window::Windows;

/// The states of Fig. 9.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No power saving; waiting for a stable load.
    Unstable,
    /// Saving power within `plf`.
    Stable,
    /// No user requests; background work races to its end.
    Idle,
}

/// Least resources that a controller around PACER asks for (`pacer_plus.rs`); PACER has none.
#[derive(Debug, Clone)]
pub(in crate::cpu) struct Floors {
    /// Active cores per group.
    pub cores: Vec<u16>,
    pub frequency: Hertz,
}

/// The controller.
#[derive(Debug, Clone)]
pub struct Pacer {
    params: PacerParams,
    topology: Topology,
    /// Everything on, as `Unstable` wants it.
    native: Vec<GroupControl>,
    state: State,
    windows: Windows,
    burst: BurstCheck,
    idle: IdleCheck,
    background: Background,
    cores: CoreAdaptor,
    memory: Memory,
    floors: Floors,
    ceilings: Ceilings,
    /// `l_baseline` in ns, and when it was last learned.
    l_baseline: f64,
    learned_at: Nanos,
    /// How long the baseline, and a floor, is to be trusted.
    trusted_for: Nanos,
    /// The last setting that was measured to keep `plf`.
    kept: Vec<GroupControl>,
    /// Unstable only to learn the baseline again: go back to `kept` if it has not changed.
    relearning: bool,
    /// Periods for which to go on asking for `kept`.
    resume: u8,
    /// What left the last step.
    asked: Vec<GroupControl>,
}

impl Pacer {
    /// PACER for `topology`.
    ///
    /// # Errors
    /// A parameter out of its range.
    pub fn new(topology: &Topology, params: PacerParams) -> Result<Self, PolicyError> {
        params.validate()?;
        let native = Controls::native(topology).groups().to_vec();
        let groups = native.len();
        Ok(Self {
            topology: topology.clone(),
            state: State::Unstable,
            windows: Windows::new(&params, groups),
            burst: BurstCheck::new(&params),
            idle: IdleCheck::new(&params),
            background: Background::default(),
            cores: CoreAdaptor::new(params.alpha, params.beta, params.max_utilisation),
            memory: Memory::new(groups),
            ceilings: Ceilings::new(groups, params.stable_thresh),
            floors: Floors { cores: vec![0; groups], frequency: Hertz(0.0) },
            l_baseline: 0.0,
            learned_at: Nanos::ZERO,
            trusted_for: params.baseline_age,
            kept: native.clone(),
            relearning: false,
            resume: 0,
            asked: native.clone(),
            native,
            params,
        })
    }

    /// What later savings leave alone, for a controller around this one.
    pub(in crate::cpu) fn floors(&mut self) -> &mut Floors {
        &mut self.floors
    }

    /// `l_baseline` in ns, once it is known.
    pub(in crate::cpu) fn l_baseline(&self) -> Option<f64> {
        (self.l_baseline > 0.0).then_some(self.l_baseline)
    }

    /// Asks for `wanted` in every group that serves I/O.
    fn set(&self, controls: &mut Controls, wanted: &[GroupControl], reason: &'static str) {
        for g in self.topology.io_groups() {
            controls.set_active(g, wanted[g].active, reason);
            controls.set_frequency(g, wanted[g].frequency, reason);
        }
    }

    /// Whether just `wanted` is asked for.
    fn asks(&self, controls: &Controls, wanted: &[GroupControl]) -> bool {
        self.topology.io_groups().all(|g| controls.groups()[g] == wanted[g])
    }

    /// Whether everything is on.
    pub(in crate::cpu) fn all_on(&self, controls: &Controls) -> bool {
        self.asks(controls, &self.native)
    }

    /// Takes down what is asked for; whether it has changed.
    fn notice(&mut self, controls: &Controls) -> bool {
        let changed = !self.asks(controls, &self.asked);
        self.asked.copy_from_slice(controls.groups());
        changed
    }

    fn enter_unstable(&mut self, controls: &mut Controls, reason: &'static str) {
        self.state = State::Unstable;
        self.windows.clear();
        self.kept.copy_from_slice(&self.native);
        (self.relearning, self.resume) = (false, 0);
        self.set(controls, &self.native, reason);
        controls.set_background(BackgroundMode::Normal, reason);
    }

    fn enter_idle(&mut self, controls: &mut Controls) {
        self.state = State::Idle;
        self.windows.clear();
        self.memory.acquit();
        (self.relearning, self.resume) = (false, 0);
        self.background = Background::default();
        self.set(controls, &self.native, "pacer:idle-race");
        controls.set_background(BackgroundMode::Race, "pacer:idle-race");
    }

    fn unstable(&mut self, signals: &Signals, controls: &mut Controls) {
        self.set(controls, &self.native, "pacer:unstable");
        let complete = self.windows.add(signals);
        let calm = complete && self.windows.l_div() < self.params.stable_thresh;
        // A load that the Burst-Check would throw out again at once is not stable.
        if calm && self.ceilings.still() && !self.burst.busy(signals, &self.topology) {
            self.enter_stable(signals.now, controls);
        }
    }

    fn stable(&mut self, signals: &Signals, burst: Option<&'static str>, controls: &mut Controls) {
        if let Some(reason) = burst {
            // If it came right after a saving, that saving is to blame.
            let forget_at = signals.now + self.trusted_for;
            self.memory.blame(controls.groups(), &self.topology, true, forget_at);
            self.enter_unstable(controls, reason);
        } else if self.ceilings.lifted() && self.ceilings.still() {
            self.learn_again(controls, "pacer:ceiling-lifted");
        } else if self.resume > 0 {
            self.resume(controls);
        } else if self.windows.add(signals) {
            if self.windows.l_div() > self.params.unstable_thresh {
                self.memory.acquit();
                self.enter_unstable(controls, "pacer:latency-diverged");
            } else {
                self.tune(signals.now, controls);
            }
        }
    }

    fn idle(&mut self, signals: &Signals, controls: &mut Controls) {
        if signals.io.arrived.is_some_and(|n| n > 0) {
            self.enter_unstable(controls, "pacer:user-request");
        } else if self.background.resting(signals.background_pending, signals.period) {
            self.set(controls, &self.kept, "pacer:idle-rest");
        } else {
            self.set(controls, &self.native, "pacer:idle-race");
        }
    }
}

impl Policy for Pacer {
    fn name(&self) -> &'static str {
        match self.params.adaptors {
            Adaptors::Both => "pacer",
            Adaptors::Cores => "pacer-cores",
            Adaptors::Frequency => "pacer-freq",
        }
    }

    fn step(&mut self, signals: &Signals, controls: &mut Controls) {
        if self.notice(controls) {
            // Somebody else, such as the guard, has changed what is in force: what was measured
            // so far belongs to another setting, and no saving of ours can be blamed.
            self.windows.clear();
            self.memory.acquit();
        }
        self.ceilings.update(&self.topology, controls, signals.period.seconds());
        let expected = self.l_baseline * (1.0 + self.params.plf);
        let burst = self.burst.check(signals, &self.topology, expected);
        let idle = self.idle.check(&signals.io, signals.period);
        match self.state {
            State::Idle => self.idle(signals, controls),
            _ if idle => self.enter_idle(controls),
            State::Unstable => self.unstable(signals, controls),
            State::Stable => self.stable(signals, burst, controls),
        }
        if self.notice(controls) {
            self.windows.clear();
        }
    }
}

#[cfg(test)]
pub(in crate::cpu) mod tests;
