//! The twin as a plant: what the control cycle senses of it and puts in force in it.

use ebb_policy::units::Nanos;
use ebb_policy::{
    Applied, BackgroundMode, Control, Cycle, InForce, IoSignals, Origin, Outcome, Plant, Signal,
    Signals, Source,
};

use super::cores::CoreLimits;
use super::meter::Drawn;
use super::{Change, Engine, TwinError};
use crate::outcome::{Observer, Sample};

/// The engine, and who watches it.
struct Watched<'a, 'b>(&'a mut Engine<'b>, &'a mut dyn Observer);

impl Plant for Watched<'_, '_> {
    fn sense(&mut self, signals: &mut Signals) {
        let Self(engine, observer) = self;
        if engine.opened {
            engine.sense_period(signals);
        } else {
            engine.sense_start(signals);
        }
        observer.sensed(signals);
    }

    fn apply(&mut self, given: &InForce, applied: &mut Applied) {
        self.0.apply(given, applied);
    }
}

impl Engine<'_> {
    /// Puts `given` in force.
    fn apply(&mut self, given: &InForce, applied: &mut Applied) {
        if !self.opened {
            // Before the first request what is given is in force at once.
            self.opened = true;
            self.array.preset(given.states());
        }
        self.in_force.clone_from(given);
        for group in 0..given.active_cores.len() {
            let (setting, refused) = self.takes(group, given.group(group));
            if refused {
                applied.set(Control::Frequency, group, Outcome::Refused);
            }
            self.cores.apply(&mut self.events, self.now, group, setting);
            let all = self.takes(group, given.limited(group, self.cores.all(group))).0;
            self.cores.set_recall(group, given.recall.value(group).map(|most| (most, all)));
        }
        let limits = CoreLimits {
            power: given.package_limit.value(0),
            time: given.cpu_time.value(0),
            period: given.cpu_period.value(0),
        };
        self.cores.limit(&mut self.events, self.now, limits);
        let rates = given.read_rate.values().zip(given.write_rate.values());
        let rates = rates.map(|(read, write)| [read, write]);
        self.array.set_rates(&mut self.ios, &mut self.events, self.now, rates);
        self.limit_best_effort(given.best_effort_rate.value(0));
        if let Some(climate) = &self.climate {
            climate.refusals(applied);
        }
        let writes = given.drive_writes(self.array.states());
        let taken =
            |(drive, _): &(usize, _)| applied.of(Control::PowerState, *drive) == Outcome::Done;
        let writes: Vec<_> = writes.filter(taken).collect();
        // No deeper than they were found where a host is played, and nowhere less deep.
        let raised = self.profile.drives.idle_wake.filter(|_| self.senses.is_none());
        let wakes = given.idle_wake.values().map(|wake| Some(wake?.max(raised?)));
        self.array.set_idle_wake(self.now, wakes);
        self.array.plan(writes.into_iter(), &mut self.events, self.now);
        let mut mode = given.background();
        if self.senses.is_some() && mode == BackgroundMode::Race {
            mode = BackgroundMode::Normal;
            applied.set(Control::Background, 0, Outcome::Refused);
        }
        if let Some(backlog) = &mut self.backlog {
            backlog.set_mode(mode);
            self.start_tasks();
        }
        if let Some(senses) = &mut self.senses {
            senses.took(Nanos(self.now), given, applied);
        }
    }

    /// Before the first request: what the policy asks for then is in force at once.
    pub(super) fn open(&mut self, cycle: &mut Cycle, observer: &mut dyn Observer) {
        let cycled = cycle.step(&mut Watched(self, observer));
        observer.opened(&cycled);
    }

    fn sense_start(&mut self, signals: &mut Signals) {
        signals.sources.all(Origin::Modelled);
        for (group, signal) in self.in_force.groups().zip(&mut signals.groups) {
            (signal.active, signal.frequency) = (Some(group.active), Some(group.frequency));
        }
        if let Some(climate) = &self.climate {
            climate.sense(&mut signals.cooling, &mut signals.drives);
        }
        if let Some(senses) = &mut self.senses {
            for (signal, state) in signals.drives.iter_mut().zip(self.array.states()) {
                signal.state = Some(*state);
            }
            senses.see(signals, &self.array, &mut self.cores);
            signals.io = IoSignals::default();
        }
    }

    fn sense_period(&mut self, signals: &mut Signals) {
        let length = self.now - self.period_start;
        let start = std::mem::replace(&mut self.period_start, self.now);
        let span = Nanos(length);
        if let Some(jobs) = &mut self.jobs {
            jobs.settle(&mut self.cores, self.now);
            jobs.sense(self.now, length, &mut signals.jobs);
        }
        (signals.now, signals.period) = (Nanos(self.now), span);
        let cores = self.cores.take_joules(self.now);
        let uncore = self.cores.uncore(self.now, length);
        let mut cpu = cores + (uncore * span).0;
        let ssd = self.array.sense(self.now, length, &mut signals.drives);
        let mut fans = self.profile.board.fans * span;
        if let Some((leakage, blown)) = self.pass_weather(length, uncore, signals) {
            cpu += leakage.0;
            fans = blown;
        }
        self.meter.book_drives(&signals.drives, span);
        self.cores.sense(length, &mut signals.groups);
        let (io, bytes) = self.meter.sense(self.users_in_flight);
        signals.io = io;
        signals.best_effort =
            self.best_effort.as_mut().map(|work| work.sense()).unwrap_or_default();
        self.drawn = self.meter.energy(span, Drawn { cpu, ssd, fans }, bytes);
        if let Some(jobs) = &mut self.jobs {
            let before = self.meter.outcome.energy.total();
            jobs.book_energy((start, length), before, self.drawn.total());
        }
        signals.power = self.meter.book(self.drawn, start, span, self.ssd_budget);
        let (lag, window) = (self.profile.board.meter_lag, self.profile.board.meter_window);
        if lag.max(window) > Nanos::ZERO {
            signals.power.total = self.meter.late(self.now, span, lag, window);
            let source = Source { age: lag, origin: Origin::Modelled };
            signals.sources.set(Signal::Power, 0, source);
        }
        if let Some(backlog) = &mut self.backlog {
            backlog.accrue(self.now);
            signals.background_pending = Some(backlog.pending());
        }
        let cores = self.cores.take_time();
        self.meter.outcome.cores.add(cores);
        if let Some(spell) = self.meter.spells.of(start) {
            spell.cores.add(cores);
        }
        if let Some(senses) = &mut self.senses {
            senses.see(signals, &self.array, &mut self.cores);
        }
    }

    /// The end of a control period.
    ///
    /// # Errors
    /// When the server switched itself off for heat in it; its books are closed all the same. A
    /// change that asks for what the operator holds.
    pub(super) fn tick(
        &mut self,
        cycle: &mut Cycle,
        observer: &mut dyn Observer,
    ) -> Result<(), TwinError> {
        let mut budget = self.ssd_budget;
        while let Some(change) = self.changes.pop_front_if(|change| change.at.0 <= self.now) {
            let Change { policy, ssd_budget, limit, server_budget, .. } = change;
            budget = ssd_budget;
            if let Some(policy) = policy {
                let changed = cycle.change(policy, limit);
                changed.map_err(|error| TwinError::Setup(error.to_string()))?;
            }
            cycle.set_server_budget(server_budget);
        }
        let cycled = cycle.step(&mut Watched(self, observer));
        // The period that has just ended was under the old one.
        self.ssd_budget = budget;
        for (event, begins) in self.climate.iter().flat_map(|climate| &climate.news) {
            observer.fault(event, *begins);
        }
        observer.sample(&Sample {
            cycled,
            energy: self.drawn,
            length: cycled.signals.period,
            weather: self.climate.as_ref().map(|climate| &climate.weather),
            wear: self.array.wear().sum(),
        });
        if self.warmup > 0 && self.now >= self.warmup {
            self.warmup = 0;
            self.meter.restart(self.now);
            self.worn = self.array.wear().collect();
            if let Some(climate) = &mut self.climate {
                climate.restart();
            }
        }
        let trip = self.climate.as_ref().and_then(|climate| climate.trip);
        trip.map_or(Ok(()), |trip| Err(trip.into()))
    }
}
