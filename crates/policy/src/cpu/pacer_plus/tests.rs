//! PACER's promises once more, with the recall and the drives beside it.

use proptest::prelude::*;

use super::*;
use crate::GroupSetting;
use crate::cpu::pacer::tests::plant::{Loop, Plant};
use crate::cpu::pacer::tests::{beside_jobs, job_cores, plants};
use crate::units::{Hertz, Watts};

fn plus(plant: Plant, plf: f64) -> Loop<PacerPlus> {
    let policy = PacerPlus::new(&plant.topology, PacerParams::for_plf(plf)).unwrap();
    Loop::new(plant, policy)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn cores_that_run_jobs_make_no_difference(plant in plants(), at in 0_usize..=3) {
        let mut without = plus(plant.clone(), 0.2);
        let mut with = plus(beside_jobs(plant, at), 0.2);
        let all_on = with.in_force.group(at);
        for period in 0..600 {
            without.step();
            with.step_with(|signals| job_cores(signals, at, period));
            let mut groups = with.groups();
            prop_assert_eq!(groups.remove(at), all_on);
            prop_assert_eq!(groups, without.groups(), "after {} periods", period);
        }
    }

    #[test]
    fn mean_latency_keeps_plf(plant in plants(), plf in 0.02..1.0) {
        let noise = plant.noise;
        let mut run = plus(plant, plf);
        run.run(120);
        let (relative, _) = run.run(600);
        prop_assert!(relative <= 1.0 + plf + noise / 2.0, "{relative} with plf {plf}");
    }
}

/// There is one latency to steer by. What a reserve raises in one group alone, no loss would ever
/// raise in the others, and their cores would come back in its place.
#[test]
fn a_reserve_keeps_one_frequency() {
    let mut run = plus(Plant::new(20e3), 0.2);
    for period in 0..2000 {
        run.step_with(|signals| {
            let times = if period % 100 == 99 { 3 } else { 1 };
            signals.io.mean_latency = signals.io.mean_latency.map(|l| Nanos(times * l.0));
        });
        let groups = run.groups();
        let same = groups.windows(2).all(|pair| pair[0].frequency == pair[1].frequency);
        assert!(same, "{groups:?} after {period} periods");
    }
}

/// Cores found active or fast that were not given are an answer to a burst: everything comes back.
#[test]
fn a_recall_brings_everything_back() {
    let recalls: [fn(&mut Signals); 2] = [
        |signals| signals.groups[1].active = Some(16),
        |signals| signals.groups[1].frequency = Some(Hertz(9e9)),
    ];
    for recall in recalls {
        let mut run = plus(Plant::new(20e3), 0.2);
        run.run(120);
        let native = Loop::new(run.plant.clone(), crate::cpu::Native).groups();
        assert_ne!(run.groups(), native, "nothing saved");
        run.step_with(recall);
        run.step();
        assert_eq!(run.groups(), native);
    }
}

/// The kernel measures a frequency, and reads a little more than what was set.
#[test]
fn a_frequency_that_was_measured_is_no_recall() {
    let mut exact = plus(Plant::new(20e3), 0.2);
    let mut measured = plus(Plant::new(20e3), 0.2);
    for _ in 0..120 {
        exact.step();
        let in_force = [0, 1, 2].map(|group| measured.in_force.group(group).frequency);
        measured.step_with(|signals| {
            for (group, set) in signals.groups.iter_mut().zip(in_force) {
                group.frequency = Some(set * 1.002);
            }
        });
        assert_eq!(measured.groups(), exact.groups());
    }
}

/// A bunch that takes much says how many cores stay, until the account can pay for more.
#[test]
fn a_bunch_asks_for_a_reserve() {
    let mut run = plus(Plant::new(20e3), 0.2);
    run.run(120);
    let before = run.policy.reserve();
    run.step_with(|signals| {
        signals.io.mean_latency = signals.io.mean_latency.map(|l| Nanos(3 * l.0));
    });
    let after = run.policy.reserve();
    assert!(before < after && after < 1.0, "{before} {after}");
    run.run(20);
    for (group, all) in run.groups().iter().zip(&run.plant.topology.groups) {
        let share = f64::from(group.active) / f64::from(all.cores);
        assert!(share >= run.policy.reserve(), "{share}");
    }
    run.run(2000);
    assert!(run.policy.reserve() < after);
}

/// What waited when everything came back was still caused by the saving.
#[test]
fn what_a_saving_leaves_waiting_is_taken_from_the_account() {
    let mut run = plus(Plant::new(20e3), 0.2);
    run.run(120);
    run.step_with(|signals| signals.groups[1].active = Some(16));
    let before = run.policy.balance();
    run.step_with(|signals| {
        signals.io.mean_latency = signals.io.mean_latency.map(|l| Nanos(9 * l.0));
    });
    assert!(run.policy.balance() < before);
}

/// A settled run whose load falls to a tenth while the latency without any saving rises; for
/// 20 s, with requests `larger` times as large. Returns cores before and after, and the reasons.
fn falls(larger: u64) -> (u16, u16, Vec<&'static str>) {
    let mut run = plus(Plant::new(20e3), 0.2);
    run.run(120);
    let before = run.cores();
    (run.plant.rate, run.plant.other) = (2e3, 2.0 * run.plant.other);
    let mut reasons = Vec::new();
    for _ in 0..40 {
        run.step_with(|signals| signals.io.bytes = signals.io.bytes.map(|bytes| bytes * larger));
        reasons.extend(run.reasons());
    }
    (before, run.cores(), reasons)
}

/// Idle cores sleep deeply: what that costs is learned, and the same cores are parked again.
#[test]
fn a_latency_that_rises_as_the_load_falls_is_no_loss() {
    let (before, after, reasons) = falls(1);
    assert!(reasons.contains(&"pacer-plus:lighter"), "{reasons:?}");
    assert!(!reasons.iter().any(|reason| reason.contains("loss")), "{reasons:?}");
    assert!(after <= before, "{before} {after}");
}

/// Light and heavy by turns: what the light load takes is learned once, and cores stay parked.
#[test]
fn a_load_that_is_light_by_turns_is_not_learned_at_each() {
    // The first is long enough to learn it; the others are not, or are.
    for turns in [3, 16] {
        light_by_turns(turns);
    }
}

fn light_by_turns(periods: usize) {
    let mut run = plus(Plant::new(20e3), 0.2);
    run.run(120);
    let (parked, other) = (run.cores(), run.plant.other);
    let mut learned = 0;
    for turn in 0..12 {
        (run.plant.rate, run.plant.other) = (20e3, other);
        for _ in 0..8 {
            run.step_with(|_| {});
        }
        (run.plant.rate, run.plant.other) = (2e3, 2.0 * other);
        for _ in 0..if turn == 0 { 30 } else { periods } {
            run.step_with(|_| {});
            learned += usize::from(run.reasons().contains(&"pacer-plus:lighter"));
        }
        assert!(turn > 0 || learned == 1, "{learned} times");
    }
    assert!(learned <= 5, "{learned} times in 12 turns of {periods} periods");
    assert!(run.cores() <= parked.max(32), "{} {parked}", run.cores());
}

/// Fewer requests that are larger may be slow because of the saving.
#[test]
fn larger_requests_are_no_lighter_load() {
    let (_, _, reasons) = falls(8);
    assert!(!reasons.contains(&"pacer-plus:lighter"), "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.contains("loss")), "{reasons:?}");
}

/// A settled run whose load is seven times as heavy for 3 s, twice; the latency is then so many
/// times the calm one, under a saving and with everything on. What the account has in the end, in
/// requests' latencies, and whether anything is saved.
fn two_jumps(saving: f64, native: f64) -> (f64, bool) {
    let mut run = plus(Plant::new(20e3), 0.2);
    run.run(120);
    let all = Loop::new(run.plant.clone(), crate::cpu::Native).groups();
    let calm = run.plant.native_latency();
    for _ in 0..2 {
        for period in 0..6 {
            let saved = run.groups() != all || period == 0;
            let latency = calm * if saved { saving } else { native };
            run.step_with(|signals| {
                let io = &mut signals.io;
                for count in [&mut io.arrived, &mut io.completed, &mut io.bytes] {
                    *count = count.map(|count| 7 * count);
                }
                io.mean_latency = Some(Nanos::from_seconds(latency));
                // The plant brings back all cores as the load jumps.
                signals.groups[1].active = Some(16);
            });
        }
        run.run(24);
    }
    (run.policy.balance() / (10e3 * calm * 1e9), run.groups() != all)
}

#[test]
fn a_heavier_load_that_takes_longer_in_any_case_is_no_loss() {
    let (balance, saves) = two_jumps(4.0, 4.0);
    assert!(balance > 0.0 && saves, "{balance}");
}

#[test]
fn what_a_saving_adds_to_a_heavier_load_is_a_loss() {
    let (balance, saves) = two_jumps(4.0, 1.0);
    assert!(balance < 0.0 && !saves, "{balance}");
}

/// What cores draw at a share of the highest frequency.
type Draws = fn(f64) -> f64;

/// Where a run settles whose cores draw so much, what that comes to, and the reasons on the way.
/// Requests wait for drives most of the time, and the meter may be there or not.
fn settles(draws: Draws, metered: bool) -> (f64, Vec<&'static str>) {
    let mut plant = Plant::new(400e3);
    plant.service.iter_mut().for_each(|service| *service *= 0.1);
    let highest = plant.topology.max_frequency();
    let watts = |groups: Vec<GroupSetting>| {
        let each = groups.into_iter();
        each.map(|g| f64::from(g.active) * draws(g.frequency / highest)).sum::<f64>()
    };
    let (mut run, mut reasons) = (plus(plant, 0.2), Vec::new());
    for _ in 0..600 {
        let drawn = watts(run.groups());
        run.step_with(|signals| signals.power.cpu = metered.then_some(Watts(drawn)));
        reasons.extend(run.reasons());
    }
    (watts(run.groups()), reasons)
}

/// Power that grows with the cube of the frequency is worth more cores; power that does not is not.
#[test]
fn cores_go_for_frequency_where_that_draws_less() {
    let cubic: Draws = |share| 1.0 + 9.0 * share.powi(3);
    let ((unmetered, never), (metered, reasons)) = (settles(cubic, false), settles(cubic, true));
    assert!(!never.contains(&"pacer-plus:exchange"), "without a meter");
    assert!(reasons.contains(&"pacer-plus:exchange"), "{reasons:?}");
    assert!(metered < 0.95 * unmetered, "{metered} and {unmetered} W");

    let flat: Draws = |_| 10.0;
    let ((unmetered, _), (metered, reasons)) = (settles(flat, false), settles(flat, true));
    assert!(reasons.contains(&"pacer-plus:exchange-back"), "{reasons:?}");
    assert!(metered <= unmetered, "{metered} and {unmetered} W");
    let tried = reasons.iter().filter(|reason| **reason == "pacer-plus:exchange").count();
    assert!(tried <= 6 * 4, "{tried} decisions: what does not pay is tried ever less often");
}

/// The load is another in every period: what it draws more or less is known, and no reason to doubt
/// what a setting draws.
#[test]
fn what_is_drawn_is_compared_under_loads_that_change() {
    let mut plant = Plant::new(400e3);
    plant.service.iter_mut().for_each(|service| *service *= 0.1);
    let highest = plant.topology.max_frequency();
    let mut run = plus(plant, 0.2);
    for period in 0..1200 {
        run.plant.rate = [250e3, 420e3, 310e3, 500e3, 380e3][period % 5];
        let (groups, rate) = (run.groups(), run.plant.rate);
        let each = groups
            .into_iter()
            .map(|g| f64::from(g.active) * (1.0 + 9.0 * (g.frequency / highest).powi(3)));
        let drawn = each.sum::<f64>() + rate * 1e-4;
        run.step_with(|signals| signals.power.cpu = Some(Watts(drawn)));
    }
    assert!(run.ghz() < 1.5, "{} GHz: no exchange was seen to pay", run.ghz());
}

/// Where requests spend hardly any time on CPUs, latencies that differ by half from second to
/// second are no reason to keep the highest frequency. Where they spend it there, they are.
#[test]
fn the_frequency_that_costs_nothing_needs_no_stable_latency() {
    let settles = |part: f64, plf: f64| {
        let mut plant = Plant::new(20e3);
        plant.service.iter_mut().for_each(|service| *service *= part);
        let (mut run, mut ghz) = (plus(plant, plf), 0.0);
        for period in 0..400 {
            let times = [1.0, 1.5, 0.8, 2.1, 1.2, 0.7, 1.7][period / 2 % 7];
            ghz += if period < 40 { 0.0 } else { run.ghz() / 360.0 };
            run.step_with(|signals| {
                let scaled = |l: Nanos| Nanos((l.0 as f64 * times) as u64);
                signals.io.mean_latency = signals.io.mean_latency.map(scaled);
            });
        }
        ghz
    };
    assert!(settles(0.02, 0.05) < 1.3);
    assert!(settles(1.0, 0.05) > 2.59);
}

/// At that frequency, and whatever is saved below it, `plf` is that of the highest.
#[test]
fn the_frequency_that_costs_nothing_is_part_of_what_is_lost() {
    for plf in [0.05, 0.1, 0.2] {
        let mut plant = Plant { pooled: false, ..Plant::new(20e3) };
        plant.service.iter_mut().for_each(|service| *service *= plf / 2.0);
        let mut run = plus(plant, plf);
        run.run(60);
        let (relative, _) = run.run(300);
        assert!(run.ghz() < 1.4, "{} GHz at {plf}", run.ghz());
        assert!(relative <= 1.0 + plf, "{relative} at {plf}");
        // What the cores have too much to do for at it has the highest at once.
        run.plant.rate = 2e6 / plf;
        run.run(2);
        let native = Loop::new(run.plant.clone(), crate::cpu::Native).groups();
        assert_eq!(run.groups(), native, "{plf}");
    }
}

/// Three windows may agree by chance. What is not known within `plf` is not spent.
#[test]
fn windows_that_agree_by_chance_do_not_make_a_latency_known() {
    let mut run = plus(Plant::new(20e3), 0.05);
    let (native, mut saving) = (run.groups(), 0);
    for period in 0..2000 {
        let times = if period % 12 < 5 { 1.0 } else { [1.3, 0.8, 1.6][period % 3] };
        run.step_with(|signals| {
            let scaled = |l: Nanos| Nanos((l.0 as f64 * times) as u64);
            signals.io.mean_latency = signals.io.mean_latency.map(scaled);
        });
        saving += usize::from(run.groups() != native);
    }
    assert!(saving < 100, "{saving} of 2000 periods under a saving");
}

/// In bunches cores have too much to do and on average little: steps must not be as large as what
/// is left of their time.
#[test]
fn no_step_is_far_beyond_plf_where_cores_have_little_to_do() {
    for (rate, beyond, plf) in
        [(1e3, 0.05, 0.2), (3e3, 0.03, 0.2), (10e3, 0.02, 0.2), (1e3, 0.2, 0.05)]
    {
        let mut run = plus(Plant::new(rate), plf);
        let calm = run.plant.native_latency();
        for period in 0..1000 {
            let capacity = run.policy.pacer.capacity(|g| run.in_force.group(g));
            let taken = 1.0 + beyond * (1.0 / capacity - 1.0);
            assert!(taken < 1.0 + 1.5 * plf, "{taken} times after {period} periods");
            run.step_with(|signals| {
                signals.io.mean_latency = Some(Nanos::from_seconds(calm * taken));
            });
        }
        assert!(run.cores() < 88, "{} cores", run.cores());
    }
}

/// Cores that draw as much parked as idle are not worth any latency.
#[test]
fn what_saves_nothing_is_given_back() {
    let mut run = plus(Plant::new(20e3), 0.2);
    let native = run.groups();
    let (mut saving, mut tries) = (0, 0);
    for _ in 0..2400 {
        run.step_with(|signals| signals.power.cpu = Some(Watts(100.0)));
        saving += usize::from(run.groups() != native);
        tries += usize::from(run.reasons().contains(&"pacer-plus:saves-nothing"));
    }
    assert!((2..=5).contains(&tries), "tried ever less often: {tries}");
    assert!(saving < 2400 / 8, "{saving} periods");
}

/// The same where each trial ends in a recall, and where a load that changes draws as it likes.
#[test]
fn what_saves_nothing_is_given_back_in_bunches() {
    let mut run = plus(Plant::new(20e3), 0.2);
    let (native, mut saving) = (run.groups(), 0);
    for period in 0..2400 {
        run.plant.rate = [12e3, 21e3, 31e3, 17e3, 26e3][period % 5];
        let drawn = 20.0 + run.plant.rate * 1e-3;
        let saves = run.groups() != native;
        run.step_with(|signals| {
            signals.power.cpu = Some(Watts(drawn));
            if saves {
                signals.groups.iter_mut().for_each(|group| group.active = Some(48));
            }
        });
        saving += usize::from(saves);
    }
    assert!(saving < 2400 / 8, "{saving} periods");
}

/// A run of so many seconds of load and seven of silence, and the shares of each group's cores that
/// are active then.
fn silent(busy: u64, other_work: f64) -> (Loop<PacerPlus>, Vec<f64>) {
    let mut run = plus(Plant::new(60e3), 0.2);
    run.run(busy);
    let native = run.groups();
    let rate = std::mem::take(&mut run.plant.rate);
    for period in 0..14 {
        assert!(period > 9 || run.groups() == native, "after {period} periods");
        run.step_with(|signals| {
            for group in &mut signals.groups {
                group.utilisation = group.active.map(|n| (other_work / f64::from(n)).min(1.0));
            }
        });
    }
    let cores = run.plant.topology.groups.iter().map(|group| f64::from(group.cores));
    let shares = run.groups().into_iter().zip(cores);
    let shares = shares.map(|(now, all)| f64::from(now.active) / all).collect();
    run.plant.rate = rate;
    (run, shares)
}

/// Nobody waits in silence, and no baseline is needed for it.
#[test]
fn half_of_the_cores_go_in_silence_before_a_baseline_is_learned() {
    let (mut run, shares) = silent(1, 0.0);
    assert!(shares.iter().all(|share| (0.5..0.6).contains(share)), "{shares:?}");
    run.step();
    let native = Loop::new(run.plant.clone(), crate::cpu::Native).groups();
    assert_eq!(run.groups(), native, "back with the first request");
}

/// Cores that work for others than users stay.
#[test]
fn silence_takes_no_core_from_other_work() {
    let (_, shares) = silent(0, 14.0);
    assert_eq!(shares[1], 1.0, "14 of 16 cores are busy: {shares:?}");
    assert!(shares[0] < 0.6 && shares[2] < 0.7, "{shares:?}");
}

/// A settled run, a silence of ten seconds and a period of requests that take so many times the
/// native latency: what was in force in silence, and what is after it.
fn wakes(run: &mut Loop<PacerPlus>, times: f64) -> [Vec<GroupSetting>; 2] {
    let rate = std::mem::take(&mut run.plant.rate);
    run.run(20);
    run.plant.rate = rate;
    let (silence, calm) = (run.groups(), run.plant.native_latency());
    run.step_with(|signals| {
        signals.io.mean_latency = Some(Nanos::from_seconds(times * calm));
    });
    [silence, run.groups()]
}

/// What the first requests bear need not be given back for the others.
#[test]
fn a_burst_goes_on_with_what_the_silence_has_left_it() {
    let mut run = plus(Plant::new(2e3), 0.2);
    run.run(400);
    let calm = run.groups();
    let [silence, after] = wakes(&mut run, 1.1);
    assert_eq!(after, silence);
    assert_ne!(silence, calm, "nothing more is saved in silence");
    let [silence, after] = wakes(&mut run, 1.4);
    assert_ne!(after, silence);
}

/// A burst that the cores of a silence were too few for meets more of them after the next.
#[test]
fn silence_keeps_what_the_first_requests_after_it_need() {
    let mut run = plus(Plant::new(20e3), 0.2);
    run.run(400);
    let [before, _] = wakes(&mut run, 4.0);
    run.run(400);
    let [after, _] = wakes(&mut run, 1.1);
    for (before, after) in before.iter().zip(after) {
        assert!(after.active > before.active, "{before:?} {after:?}");
    }
}
