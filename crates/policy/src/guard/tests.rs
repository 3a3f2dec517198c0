//! What leaves the guard is within its limits, whatever a policy asks and a sensor says.

mod drives;

use proptest::prelude::*;

use super::*;
use crate::ssd::testing::{any_topology, pm1743, topology};
use crate::{BackgroundMode, GroupSetting, PERIOD, PowerState};

/// Three groups of 16 cores (at least 2) and four PM1743.
fn server() -> Topology {
    topology(&vec![pm1743().to_vec(); 4])
}

/// A guard with one server's signals and request.
struct Bench {
    guard: Guard,
    signals: Signals,
    request: Request,
}

impl Bench {
    fn new(limits: Limits) -> Self {
        let server = server();
        let mut signals = Signals::new(&server);
        signals.io.arrived = Some(100);
        signals.io.completed = Some(100);
        signals.io.mean_latency = Some(Nanos::from_micros(200));
        signals.period = PERIOD;
        let (guard, request) = (Guard::new(&server, limits), Request::new(&server));
        Self { guard, signals, request }
    }

    fn with_budget(watts: f64) -> Self {
        Self::new(Limits { ssd_budget: Some(Watts(watts)), ..Limits::default() })
    }

    /// One period in which a policy does `ask`; why something else is given.
    fn period(&mut self, ask: impl FnOnce(&mut Request)) -> Vec<&'static str> {
        self.signals.now += PERIOD;
        self.enforce(ask)
    }

    /// The same without time moving on.
    fn enforce(&mut self, ask: impl FnOnce(&mut Request)) -> Vec<&'static str> {
        ask(&mut self.request);
        let in_force = self.guard.enforce(&self.request, &self.signals);
        let mut reasons: Vec<_> = in_force.held().map(|(_, _, reason)| reason).collect();
        reasons.dedup();
        reasons
    }

    fn active(&self) -> u16 {
        self.guard.in_force().group(0).active
    }

    fn drives(&self) -> Vec<PowerState> {
        self.guard.in_force().states().collect()
    }

    fn groups(&self) -> Vec<GroupSetting> {
        self.guard.in_force().groups().collect()
    }
}

/// Saves as much as it can, at once.
fn miser(request: &mut Request) {
    for g in 0..3 {
        request.active_cores.ask(g, 2, "test:miser");
        request.frequency.ask(g, Hertz(1.5e9), "test:miser");
    }
    for d in 0..4 {
        request.power_state.ask(d, 4, "test:miser");
    }
    request.ask_background(BackgroundMode::Race, "test:miser");
}

#[test]
fn a_request_within_the_limits_passes_untouched() {
    let mut bench = Bench::with_budget(56.0);
    let guarded = bench.period(|request| {
        request.active_cores.ask(0, 9, "test:ask");
        request.frequency.ask(0, Hertz(2.0e9), "test:ask");
        for (d, ps) in [4, 4, 3, 1].into_iter().enumerate() {
            request.power_state.ask(d, ps, "test:ask");
        }
    });
    assert_eq!(guarded, [""; 0], "9 + 9 + 14 + 21 W of 56");
    assert_eq!(bench.drives(), [4, 4, 3, 1]);
}

#[test]
fn cores_stay_between_the_minimum_and_all() {
    let mut bench = Bench::new(Limits { park_share: 1.0, ..Limits::default() });
    assert_eq!(bench.period(|c| c.active_cores.ask(0, 0, "test:ask")), ["guard:min-cores"]);
    assert_eq!(bench.active(), 2);
    assert_eq!(bench.period(|c| c.active_cores.ask(0, 99, "test:ask")), ["guard:max-cores"]);
    assert_eq!(bench.active(), 16);
}

#[test]
fn parking_is_gradual_and_restoring_is_not() {
    let mut bench = Bench::new(Limits { park_share: 0.25, ..Limits::default() });
    for fewest in [12, 8, 4] {
        let guarded = bench.period(|c| c.active_cores.ask(0, 2, "test:ask"));
        assert_eq!((bench.active(), guarded), (fewest, vec!["guard:park-rate"]));
    }
    assert_eq!(bench.period(|c| c.active_cores.ask(0, 2, "test:ask")), [""; 0]);
    assert_eq!(bench.active(), 2);
    assert_eq!(bench.period(|c| c.active_cores.ask(0, 16, "test:ask")), [""; 0]);
    assert_eq!(bench.active(), 16);
}

#[test]
fn frequencies_are_available_and_above_the_floor() {
    let min_frequency = Some(Hertz(1.8e9));
    let mut bench = Bench::new(Limits { min_frequency, ..Limits::default() });
    for (asked, given, why) in [
        (1.5e9, 2.0e9, "guard:min-frequency"),
        (2.1e9, 2.6e9, "guard:unavailable-frequency"),
        (9.9e9, 2.6e9, "guard:unavailable-frequency"),
        (f64::NAN, 2.6e9, "guard:absurd-request"),
        (f64::NEG_INFINITY, 2.6e9, "guard:absurd-request"),
    ] {
        let guarded = bench.period(|c| c.frequency.ask(1, Hertz(asked), "test:ask"));
        assert_eq!(bench.groups()[1].frequency, Hertz(given), "{asked}");
        assert_eq!(guarded, [why], "{asked}");
    }
}

#[test]
fn drives_never_enter_a_state_that_serves_no_io() {
    let mut bench = Bench::new(Limits::default());
    for ps in [5, 9, 255] {
        let guarded = bench.period(|c| c.power_state.ask(2, ps, "test:ask"));
        assert_eq!(guarded, ["guard:not-operational"]);
        assert_eq!(bench.drives(), [0, 0, 4, 0]);
    }
}

#[test]
fn over_budget_the_uniform_cap_holds_and_lower_wishes_stay() {
    let mut bench = Bench::with_budget(56.0);
    let guarded = bench.period(|c| c.power_state.ask(0, 4, "test:ask"));
    assert_eq!(bench.drives(), [4, 3, 3, 3]);
    assert_eq!(guarded, ["guard:over-budget"]);
    // An impossible budget: the deepest caps, as near as the drives come.
    let mut bench = Bench::with_budget(20.0);
    bench.period(|_| ());
    assert_eq!(bench.drives(), [4; 4]);
    let mut bench = Bench::with_budget(f64::NAN);
    bench.period(|_| ());
    assert_eq!(bench.drives(), [4; 4]);
}

#[test]
fn a_drive_that_keeps_a_higher_cap_is_paid_for_by_the_others() {
    let mut bench = Bench::with_budget(61.0);
    let ask = |c: &mut Request| {
        for (d, ps) in [3, 3, 3, 3].into_iter().enumerate() {
            c.power_state.ask(d, ps, "test:ask");
        }
    };
    bench.period(ask);
    bench.signals.drives[1].state = Some(0);
    for _ in 0..3 {
        assert_eq!(bench.period(ask), [""; 0], "perhaps in transition");
    }
    // 25 W of 61 W are taken: 12 W each remain for the others, which means 9 W.
    assert_eq!(bench.period(ask), ["guard:over-budget"]);
    assert_eq!(bench.drives(), [4; 4]);
    bench.signals.drives[1].state = Some(3);
    bench.period(ask);
    assert_eq!(bench.drives(), [3; 4]);
}

#[test]
fn absurd_signals_mean_native_within_the_budget() {
    type Lie = fn(&mut Signals);
    let lies: [(&str, Lie); 12] = [
        ("guard:absurd-power", |s| s.power.total = Some(Watts(f64::NAN))),
        ("guard:absurd-power", |s| s.power.cpu = Some(Watts(-1.0))),
        ("guard:absurd-power", |s| s.power.ssd = Some(Watts(1e6))),
        ("guard:absurd-drive-power", |s| s.drives[3].power = Some(Watts(400.0))),
        ("guard:absurd-drive-power", |s| s.drives[0].power = Some(Watts(-0.1))),
        ("guard:absurd-temperature", |s| s.drives[0].temperature = Some(Celsius(-273.0))),
        ("guard:absurd-utilisation", |s| s.groups[2].utilisation = Some(1.2)),
        ("guard:absurd-utilisation", |s| s.groups[0].busiest = Some(f64::INFINITY)),
        ("guard:absurd-frequency", |s| s.groups[0].frequency = Some(Hertz(2.6e12))),
        ("guard:absurd-core-count", |s| s.groups[0].active = Some(17)),
        ("guard:wrong-shape", |s| s.drives.truncate(3)),
        ("guard:wrong-shape", |s| s.groups.clear()),
    ];
    for (why, lie) in lies {
        let mut bench = Bench::with_budget(56.0);
        bench.period(miser);
        bench.period(miser);
        assert_eq!((bench.active(), bench.drives()), (2, vec![4; 4]));
        lie(&mut bench.signals);
        assert_eq!(bench.period(miser), [why]);
        let native: Vec<_> = InForce::new(&server()).groups().collect();
        assert_eq!(bench.groups(), native, "{why}");
        assert_eq!(bench.drives(), [3; 4], "{why}");
        assert_eq!(bench.guard.in_force().background(), BackgroundMode::Normal, "{why}");
    }
}

#[test]
fn without_a_budget_native_drives_are_uncapped() {
    let mut bench = Bench::new(Limits::default());
    bench.period(miser);
    bench.signals.drives[0].power = Some(Watts(f64::NAN));
    bench.period(miser);
    assert_eq!(bench.drives(), [0; 4]);
}

#[test]
fn trust_returns_after_enough_good_periods_in_a_row() {
    let limits =
        Limits { park_share: 1.0, recovery: Nanos::from_millis(1500), ..Limits::default() };
    let mut bench = Bench::new(limits);
    // A lie, two good periods, another lie: the count starts again.
    for (utilisation, active) in
        [(7.0, 16), (0.5, 16), (0.5, 16), (7.0, 16), (0.5, 16), (0.5, 16), (0.5, 2)]
    {
        bench.signals.groups[1].utilisation = Some(utilisation);
        bench.period(miser);
        assert_eq!(bench.active(), active);
    }
}

#[test]
fn missing_io_counters_take_the_cores_but_not_the_caps() {
    let mut bench = Bench::new(Limits { park_share: 1.0, ..Limits::default() });
    bench.signals.io.mean_latency = None;
    for _ in 0..3 {
        assert_eq!(bench.period(miser), [""; 0]);
    }
    assert_eq!(bench.period(miser), ["guard:io-missing"]);
    assert_eq!((bench.active(), bench.drives()), (16, vec![4; 4]));
    // No request completed: then no latency is honest.
    bench.signals.io.completed = Some(0);
    for _ in 0..9 {
        bench.period(miser);
        assert_eq!(bench.active(), 16);
    }
    assert_eq!(bench.period(miser), [""; 0]);
    assert_eq!(bench.active(), 2);
}

#[test]
fn counters_that_come_and_go_do_not_earn_trust() {
    let limits =
        Limits { park_share: 1.0, recovery: Nanos::from_millis(1500), ..Limits::default() };
    let mut bench = Bench::new(limits);
    bench.signals.io.arrived = None;
    (0..4).for_each(|_| drop(bench.period(miser)));
    for t in 0..12 {
        bench.signals.io.arrived = (t % 2 == 0).then_some(100);
        bench.period(miser);
        assert_eq!(bench.active(), 16);
    }
}

#[test]
fn caps_recover_from_a_lie_where_io_counters_never_come() {
    let mut bench = Bench::new(Limits::default());
    bench.signals.io = Default::default();
    bench.signals.drives[0].power = Some(Watts(f64::NAN));
    bench.period(miser);
    assert_eq!(bench.drives(), [0; 4]);
    bench.signals.drives[0].power = Some(Watts(9.0));
    for _ in 0..10 {
        bench.period(miser);
    }
    assert_eq!((bench.active(), bench.drives()), (16, vec![4; 4]));
}

#[test]
fn a_clock_that_stands_still_means_stale_signals() {
    let mut bench = Bench::new(Limits { park_share: 1.0, ..Limits::default() });
    bench.period(miser);
    for _ in 0..3 {
        assert_eq!(bench.enforce(miser), [""; 0]);
    }
    assert_eq!(bench.enforce(miser), ["guard:clock-stopped"]);
    assert_eq!((bench.active(), bench.drives()), (16, vec![0; 4]));
}

fn reading(value: f64) -> Option<crate::Reading> {
    Some(crate::Reading { at: Nanos::ZERO, temperature: Celsius(value) })
}

/// A server with two sockets, three fans and four jobs, and what it is like now.
fn warm_bench(temperature: f64) -> Bench {
    let fan = crate::FanSpec { min_duty: 0.2, max_power: Watts(20.0) };
    let server = Topology { sockets: 2, fans: vec![fan; 3], jobs: 4, ..server() };
    let mut signals = Signals::new(&server);
    signals.io.arrived = Some(100);
    signals.io.completed = Some(100);
    signals.io.mean_latency = Some(Nanos::from_micros(200));
    signals.period = PERIOD;
    let guard = Guard::new(&server, Limits::default());
    let mut bench = Bench { guard, signals, request: Request::new(&server) };
    bench.warm(Some(temperature));
    bench
}

impl Bench {
    /// Socket 1 says this from now on, socket 0 is cool.
    fn warm(&mut self, temperature: Option<f64>) {
        let at = self.signals.now + PERIOD;
        let reading = |t: f64| crate::Reading { at, temperature: Celsius(t) };
        self.signals.cooling.sockets[0] = Some(reading(self.cool()));
        self.signals.cooling.sockets[1] = temperature.map(reading);
    }

    /// A cool reading that moves.
    fn cool(&self) -> f64 {
        if (self.signals.now.0 / PERIOD.0).is_multiple_of(2) { 50.0 } else { 51.0 }
    }

    /// The duty of fan 1; `None` for the board's own control.
    fn fan(&self) -> Option<f64> {
        self.guard.in_force().fan_duty.value(1)
    }

    fn ceilings(&self) -> Vec<Option<Hertz>> {
        self.guard.in_force().frequency_cap.values().collect()
    }

    fn shares(&self) -> Vec<f64> {
        (0..4).map(|job| self.guard.in_force().share(job)).collect()
    }

    fn admits(&self) -> Vec<bool> {
        crate::QosClass::ALL.map(|class| self.guard.in_force().admits(class)).to_vec()
    }
}

fn fans(duty: f64) -> impl Fn(&mut Request) {
    move |request| (0..3).for_each(|f| request.fan_duty.ask(f, duty, "test:ask"))
}

#[test]
fn fans_stay_within_their_bounds_and_slow_down_gradually() {
    let mut bench = warm_bench(60.0);
    for (asked, given, why) in [
        (1.0, 1.0, vec![]),
        (0.96, 0.96, vec![]),
        (0.2, 0.91, vec!["guard:fan-rate"]),
        (7.0, 1.0, vec!["guard:max-duty"]),
        (f64::NAN, 1.0, vec!["guard:absurd-request"]),
    ] {
        bench.warm(Some(60.0));
        let guarded = bench.period(fans(asked));
        let duty = bench.fan().unwrap();
        assert!((duty - given).abs() < 1e-9, "{asked}: {duty}");
        assert_eq!(guarded, why, "{asked}");
    }
    for _ in 0..40 {
        bench.warm(Some(60.0));
        bench.period(fans(0.0));
    }
    assert_eq!(bench.fan(), Some(0.2));
}

#[test]
fn at_the_emergency_threshold_the_fans_are_taken() {
    let mut bench = warm_bench(88.0);
    bench.period(fans(0.95));
    bench.warm(Some(90.0));
    assert_eq!(bench.period(fans(0.95)), ["guard:emergency"]);
    assert_eq!(bench.fan(), Some(1.0));
    // Given back at the set point, after a while.
    for cool in 1..13 {
        bench.warm(Some(84.0));
        bench.period(fans(0.95));
        assert!(cool >= 10 || bench.fan() == Some(1.0), "{cool}");
    }
    assert_eq!(bench.fan(), Some(0.95));
}

#[test]
fn without_thermal_limits_only_the_hardware_is_left() {
    let mut bench = warm_bench(60.0);
    bench.guard = Guard::new(&bench.guard.topology.clone(), Limits::without_heat());
    bench.period(fans(0.3));
    for t in [Some(96.0), Some(120.0), None, None] {
        for _ in 0..120 {
            bench.warm(t);
            bench.signals.drives[0].temperature = Some(Celsius(99.0));
            bench.period(fans(0.3));
        }
        assert_eq!((bench.fan(), bench.shares()), (Some(0.3), vec![1.0; 4]), "{t:?}");
    }
}

#[test]
fn at_the_red_line_everything_gives_way() {
    let mut bench = warm_bench(60.0);
    bench.warm(Some(96.0));
    assert_eq!(bench.period(fans(0.3)), ["guard:red-line"]);
    assert_eq!(bench.fan(), Some(1.0));
    assert_eq!(bench.ceilings(), [Some(Hertz(1.5e9)); 2]);
    assert_eq!((bench.shares(), bench.admits()), (vec![0.1; 4], vec![false; 4]));
}

#[test]
fn what_the_red_line_took_comes_back_to_those_who_never_set_it() {
    let mut bench = warm_bench(60.0);
    let native = bench.ceilings();
    bench.warm(Some(96.0));
    bench.period(fans(0.3));
    assert_ne!(bench.ceilings(), native);
    for _ in 0..120 {
        bench.warm(Some(60.0));
        bench.period(fans(0.3));
    }
    assert_eq!(bench.ceilings(), native);
    assert_eq!((bench.shares(), bench.admits()), (vec![1.0; 4], vec![true; 4]));
}

#[test]
fn a_lost_sensor_ends_with_full_fans() {
    let mut bench = warm_bench(70.0);
    bench.period(fans(0.95));
    let mut full = 0;
    for _ in 0..60 {
        bench.warm(None);
        bench.period(fans(0.95));
        full += usize::from(bench.fan() == Some(1.0));
    }
    // From 70 °C, at 1 K/s and two seconds' grace.
    assert!((14..=18).contains(&full), "{full}");
}

#[test]
fn signals_that_cannot_be_believed_give_the_fans_to_the_board() {
    let mut bench = warm_bench(60.0);
    bench.period(fans(0.95));
    bench.signals.power.fans = Some(Watts(-3.0));
    assert_eq!(bench.period(fans(0.95)), ["guard:absurd-power"]);
    assert_eq!(bench.fan(), None);
}

#[test]
fn what_inlet_fans_and_jobs_cannot_be_is_not_believed() {
    type Lie = fn(&mut Signals, f64);
    let lies: [(&str, Lie); 4] = [
        ("guard:absurd-temperature", |s, value| {
            s.cooling.inlet = reading(value);
        }),
        ("guard:absurd-fan", |s, value| s.cooling.fans[2].duty = Some(value)),
        ("guard:absurd-fan", |s, value| s.cooling.fans[0].speed = Some(crate::units::Rpm(value))),
        ("guard:absurd-job", |s, value| {
            s.jobs[3].present = true;
            s.jobs[3].cpu = value;
        }),
    ];
    for (why, lie) in lies {
        for value in [f64::NAN, f64::INFINITY, -50.0, 1e30] {
            let mut bench = warm_bench(60.0);
            bench.signals.cooling.inlet = reading(25.0);
            bench.period(fans(0.95));
            assert_eq!(bench.fan(), Some(0.95));
            lie(&mut bench.signals, value);
            bench.warm(Some(60.0));
            assert_eq!(bench.period(fans(0.95)), [why], "{value}");
            assert_eq!(bench.fan(), None, "{why} {value}");
        }
    }
    // An empty slot says nothing.
    let mut bench = warm_bench(60.0);
    bench.signals.jobs[0].cpu = f64::NAN;
    assert_eq!(bench.period(fans(0.95)), [""; 0]);
}

#[test]
fn jobs_and_ceilings_stay_within_their_bounds() {
    let mut bench = warm_bench(60.0);
    let guarded = bench.period(|c| {
        c.job_share.ask(0, 0.0, "test:ask");
        c.job_share.ask(1, f64::NAN, "test:ask");
        c.job_socket.ask(2, 2, "test:ask");
        c.frequency_cap.ask(0, Hertz(2.2e9), "test:ask");
        c.frequency_cap.ask(1, Hertz(0.0), "test:ask");
    });
    assert_eq!(bench.shares(), [0.1, 1.0, 1.0, 1.0]);
    assert!(bench.guard.in_force().job_socket.values().all(|socket| socket.is_none()));
    assert_eq!(bench.ceilings(), [Some(Hertz(2.0e9)), Some(Hertz(1.5e9))]);
    let expected = [
        "guard:unavailable-frequency",
        "guard:job-share",
        "guard:absurd-request",
        "guard:no-such-socket",
    ];
    assert_eq!(guarded, expected);
}

#[test]
fn the_guide_has_every_reason_and_no_other() {
    let reasons = |text: &'static str| {
        let after = text.split("guard:").skip(1);
        let end = |rest: &str| rest.find(|c: char| !(c.is_ascii_lowercase() || c == '-'));
        let names = after.map(move |rest| &rest[..end(rest).unwrap_or(rest.len())]);
        names.filter(|name| !name.is_empty()).collect::<std::collections::BTreeSet<_>>()
    };
    let code = [
        include_str!("mod.rs"),
        include_str!("budget.rs"),
        include_str!("thermal.rs"),
        include_str!("trust.rs"),
        include_str!("../sense/plausible.rs"),
        include_str!("../contract/in_force.rs"),
    ];
    let given = code.into_iter().flat_map(reasons).collect();
    assert_eq!(reasons(include_str!("../../../../docs/policies/guard.md")), given);
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => 0.0..30.0_f64,
        1 => -1e6..1e6_f64,
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0]),
    ]
}

/// One period of one property run: what a policy asks, what a drive's sensors say.
#[derive(Debug, Clone)]
struct Chaos {
    active: u16,
    frequency: f64,
    states: Vec<PowerState>,
    power: Option<f64>,
    reported: Option<PowerState>,
}

fn any_chaos() -> impl Strategy<Value = Chaos> {
    let states = prop::collection::vec(prop_oneof![9 => 0..9_u8, 1 => any::<u8>()], 12);
    let power = prop::option::of(any_value());
    (any::<u16>(), any_value(), states, power, prop::option::of(0..9_u8)).prop_map(
        |(active, frequency, states, power, reported)| Chaos {
            active: active % 40,
            frequency: frequency * 1e8,
            states,
            power,
            reported,
        },
    )
}

proptest! {
    #[test]
    fn whatever_is_asked_and_sensed_the_limits_hold(
        server in any_topology(),
        share in 0.0..1.2_f64,
        chaos in prop::collection::vec(any_chaos(), 1..40),
    ) {
        let desc = PowerDesc::new(&server);
        let least = server.lowest_drive_budget();
        let budget = least + (desc.sum(&vec![0; desc.drives()]) - least) * share;
        let limits = Limits { ssd_budget: Some(budget), ..Limits::default() };
        let mut guard = Guard::new(&server, limits);
        let (mut signals, mut request) = (Signals::new(&server), Request::new(&server));
        let mut before = InForce::new(&server).group(0).active;
        signals.period = PERIOD;
        for chaos in chaos {
            signals.now += PERIOD;
            signals.drives[0].power = chaos.power.map(Watts);
            signals.drives[0].state = chaos.reported;
            request.active_cores.ask(0, chaos.active, "test:chaos");
            request.frequency.ask(0, Hertz(chaos.frequency), "test:chaos");
            for (d, ps) in chaos.states.iter().enumerate().take(desc.drives()) {
                request.power_state.ask(d, *ps, "test:chaos");
            }
            let in_force = guard.enforce(&request, &signals);
            let states: Vec<_> = in_force.states().collect();
            let group = in_force.group(0);
            prop_assert!((2..=16).contains(&group.active));
            prop_assert!(before.saturating_sub(group.active) <= 8, "half of 16 at most");
            before = group.active;
            prop_assert!(server.frequencies.contains(&group.frequency));
            prop_assert!(desc.sum(&states) <= budget + CAP_TOLERANCE);
            for (d, ps) in states.iter().enumerate() {
                prop_assert!(desc.mp(d, *ps).is_some());
            }
        }
    }
}
