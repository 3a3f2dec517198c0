//! The control loop: once per period what was measured goes to the policy, what the policy
//! asks for through the guard to the cores and drives.

use ebb_policy::units::Nanos;
use ebb_policy::{Controls, Guard, Limits, Policy, Signals, Topology};

use super::meter::Drawn;
use super::{Engine, TwinError};
use crate::outcome::{Observer, Sample};

/// The policy with its guard, what it saw last and what is in force.
pub(super) struct Pilot {
    policy: Box<dyn Policy>,
    guard: Guard,
    pub(super) signals: Signals,
    pub(super) controls: Controls,
}

impl Pilot {
    pub(super) fn new(topology: &Topology, policy: Box<dyn Policy>, limits: Limits) -> Self {
        Self {
            policy,
            guard: Guard::new(topology, limits),
            signals: Signals::new(topology),
            controls: Controls::native(topology),
        }
    }

    fn step(&mut self) {
        self.controls.begin(self.signals.now);
        self.policy.step(&self.signals, &mut self.controls);
        self.guard.check(&self.signals, &mut self.controls);
    }
}

impl Engine<'_> {
    /// Before the first request: the policy's opening controls are in force at once.
    pub(super) fn open(&mut self, observer: &mut dyn Observer) {
        for (group, signal) in
            self.pilot.controls.groups().iter().zip(&mut self.pilot.signals.groups)
        {
            signal.active = group.active;
            signal.frequency = Some(group.frequency);
        }
        if let Some(climate) = &self.climate {
            let signals = &mut self.pilot.signals;
            climate.sense(&mut signals.cooling, &mut signals.drives);
        }
        self.pilot.step();
        self.report(observer);
        self.array.preset(self.pilot.controls.drives());
        self.apply();
    }

    /// The end of a control period.
    ///
    /// # Errors
    /// When the server switched itself off for heat in it; its books are closed all the same.
    pub(super) fn tick(&mut self, observer: &mut dyn Observer) -> Result<(), TwinError> {
        let length = self.now - self.period_start;
        self.period_start = self.now;
        let span = Nanos(length);
        if let Some(jobs) = &mut self.jobs {
            jobs.settle(&mut self.cores, self.now);
            jobs.sense(self.now, length, &mut self.pilot.signals.jobs);
        }
        let signals = &mut self.pilot.signals;
        (signals.now, signals.period) = (Nanos(self.now), span);
        let cores = self.cores.take_joules(self.now);
        let mut cpu = cores + (self.profile.cpu.uncore * span).0;
        let ssd = self.array.sense(self.now, length, &mut signals.drives);
        let mut fans = self.profile.board.fans * span;
        if let Some((leakage, blown)) = self.pass_weather(length, observer) {
            cpu += leakage.0;
            fans = blown;
        }
        let signals = &mut self.pilot.signals;
        self.meter.book_drives(&signals.drives, span);
        self.cores.sense(length, &mut signals.groups);
        let (io, bytes) = self.meter.sense(self.users_in_flight);
        signals.io = io;
        let energy = self.meter.energy(span, Drawn { cpu, ssd, fans }, bytes);
        signals.power = self.meter.book(energy, span, self.ssd_budget);
        if let Some(backlog) = &mut self.backlog {
            backlog.accrue(self.now);
            signals.background_pending = Some(backlog.pending());
        }
        self.meter.outcome.cores.add(self.cores.take_time());
        self.pilot.step();
        self.report(observer);
        let Pilot { signals, controls, .. } = &self.pilot;
        let weather = self.climate.as_ref().map(|climate| &climate.weather);
        let wear = self.array.wear().sum();
        observer.sample(&Sample { signals, controls, energy, length: span, weather, wear });
        self.apply();
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

    fn report(&self, observer: &mut dyn Observer) {
        for decision in self.pilot.controls.decisions() {
            observer.decision(decision);
        }
    }

    /// Carries out the controls.
    fn apply(&mut self) {
        let controls = &self.pilot.controls;
        for (group, control) in controls.groups().iter().enumerate() {
            let control = self.in_force(group, *control);
            self.cores.apply(group, control, self.now);
        }
        let writes = Guard::drive_writes(self.array.states(), controls);
        let refuses = |drive| self.climate.as_ref().is_some_and(|c| c.refuses_state(drive));
        let writes: Vec<_> = writes.filter(|(drive, _)| !refuses(*drive)).collect();
        self.array.plan(writes.into_iter(), &mut self.events, self.now);
        if let Some(backlog) = &mut self.backlog {
            backlog.set_mode(controls.background());
            self.start_tasks();
        }
    }
}
