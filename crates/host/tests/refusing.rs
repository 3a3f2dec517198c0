//! Drivers that refuse what is written, or make something else of it.

use std::fs;
use std::io;
use std::path::Path;

use ebb_host::{
    Contest, Driver, Holds, Leave, RestoreOutcome, State, Stated, Verdict, compare, restore,
};
use ebb_policy::units::{Hertz, Nanos, Watts};
use ebb_policy::{Applied, Control, InForce, Outcome, Plant, Request};
use rustix::io::Errno;

use crate::acting::{Bench, changed};
use crate::fans::{act, cycle};
use crate::tree::{Tree, intel};

const DUTY: &str = "sys/class/hwmon/hwmon3/pwm1";
const MODE: &str = "sys/class/hwmon/hwmon3/pwm1_enable";
const CEILING: &str = "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";
const RAPL: &str = "sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw";

fn is(file: &Path, end: &str) -> bool {
    file.to_string_lossy().ends_with(end)
}

fn failed(outcome: &RestoreOutcome) -> bool {
    matches!(outcome, RestoreOutcome::Failed { .. })
}

/// nct6775 shows modes that it does not take (`store_pwm_enable`: EINVAL), and so does it87.
fn keeps_its_mode(file: &Path, text: &str) -> io::Result<String> {
    match is(file, "_enable") && text == "2" {
        true => Err(Errno::INVAL.into()),
        false => Ok(text.to_owned()),
    }
}

fn in_emergency(bench: &mut Bench) -> Applied {
    let topology = bench.host.topology().clone();
    let mut given = InForce::new(&topology);
    given.follow(&Request::new(&topology));
    given.emergency = true;
    let mut applied = Applied::new(&topology);
    bench.host.apply(&given, &mut applied);
    applied
}

#[test]
fn a_fan_whose_mode_is_not_taken_back_is_at_full_speed() {
    let tree = intel().driven(keeps_its_mode);
    tree.put(&MODE.replace('1', "2"), 2);
    let mut bench = Bench::new(tree);
    let fan = |bench: &Bench| [bench.tree.get(MODE), bench.tree.get(DUTY)];
    let full = ["1", "255"].map(str::to_owned);
    let state = State::open(bench.state.path()).unwrap();
    let trials = bench.host.contact(&state);
    let said = trials.iter().find(|trial| trial.of == "fan_duty").unwrap().to_string();
    for part in ["refused and not used", "'2' is not taken back", "now pwm2_enable of nct6798"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(fan(&bench), full);
    let said: Vec<_> = bench.host.notices().into_iter().map(|notice| notice.text).collect();
    assert!(said[0].ends_with("pwm1 of nct6798 (nct6775.656) is '255'"), "{said:?}");
    assert!(said.len() == 2 && said[1].contains("modprobe"), "{said:?}");
    // Whatever somebody makes of it, an emergency reaches it; no policy does.
    bench.tree.put(DUTY, 60);
    in_emergency(&mut bench);
    assert_eq!(fan(&bench), full);
    let mut request = bench.request();
    request.fan_duty.ask(0, 0.4, "test:");
    assert_eq!(bench.apply(&request).of(Control::FanDuty, 0), Outcome::Refused);
    assert_eq!((fan(&bench), bench.host.failing()), (full.clone(), 2));
    // In order or not, no end changes that, and each says so.
    bench.host.let_go().unwrap();
    for _ in 0..2 {
        let done = bench.restoration();
        assert_eq!((fan(&bench), done.count(failed)), (full.clone(), 3), "{done:#?}");
        assert_eq!(done.remedies().len(), 1, "{done:#?}");
        let text = format!("{:?}", done.places);
        assert!(text.contains("it is left at '255', which is safe, for pwm1_enable"), "{text}");
    }
    // The driver was loaded anew.
    bench.tree.driver = None;
    assert_eq!(bench.restoration().count(failed), 0);
    assert_eq!(bench.tree.get(MODE), "2");
    assert_eq!(bench.restore(), []);
}

/// One that works, until it is to be given back.
#[test]
fn a_released_fan_whose_mode_is_not_taken_back_can_be_steered_again() {
    let mut bench = Bench::new(intel().driven(keeps_its_mode));
    let trials = bench.host.contact(&State::open(bench.state.path()).unwrap());
    // The other one works, which is in the manual mode.
    assert!(trials.iter().all(|trial| trial.verdict == Verdict::Works), "{trials:?}");
    let said: Vec<_> = bench.host.notices().into_iter().map(|notice| notice.text).collect();
    assert!(said[0].starts_with("'2' is not taken back: "), "{said:?}");
    assert!(said[1].contains("until the machine is restarted"), "{said:?}");
    let mut request = bench.request();
    for (share, then) in [(Some(0.6), "153"), (None, "255"), (None, "255"), (Some(0.4), "102")] {
        request.fan_duty.release(0);
        share.into_iter().for_each(|share| request.fan_duty.ask(0, share, "test:"));
        let applied = bench.apply(&request).of(Control::FanDuty, 0);
        assert_eq!(applied == Outcome::Done, share.is_some(), "{share:?}");
        assert_eq!((bench.tree.get(DUTY).as_str(), bench.tree.get(MODE).as_str()), (then, "1"));
    }
}

/// Firmware that makes 85 W of less.
fn at_least_85_watts(file: &Path, text: &str) -> io::Result<String> {
    let low = is(file, "power_limit_uw") && text.parse::<u64>().is_ok_and(|uw| uw < 85_000_000);
    Ok(if low { "85000000" } else { text }.to_owned())
}

fn holding(tree: Tree, holds: &Holds) -> Bench {
    let held = holds.places(&tree.machine()).unwrap();
    Bench::stated(tree, &Stated::default(), Leave::Restore, held)
}

#[test]
fn what_reads_back_otherwise_is_given_back_at_once() {
    for contact in [true, false] {
        let tree = intel().driven(at_least_85_watts);
        tree.put(&RAPL.replace("power_limit_uw", "name"), "long_term").put(RAPL, 120_000_000);
        let holds = Holds { package_power: Some(Watts(30.0)), ..Holds::default() };
        let mut bench = holding(tree, &holds);
        if contact {
            let trials = bench.host.contact(&State::open(bench.state.path()).unwrap());
            let said = trials.last().unwrap().to_string();
            assert!(said.contains("'30000000' was written, '85000000' is read back"), "{said}");
        }
        bench.apply(&bench.request());
        assert_eq!(bench.tree.get(RAPL), "120000000", "contact {contact}");
        assert!(contact || bench.host.failing() == 1);
    }
}

/// `gpio-fan.c`, `store_pwm1`: eight speeds, upwards.
fn gpio(duty: u32) -> u32 {
    (duty * 7).div_ceil(255) * 255 / 7
}

/// `thinkpad_acpi.c`, `fan_pwm1_store`: eight speeds, downwards.
fn thinkpad(duty: u32) -> u32 {
    (duty >> 5) * 255 / 7
}

/// `dell-smm-hwmon.c`, `dell_smm_write`: three speeds, to the nearest.
fn dell(duty: u32) -> u32 {
    ((duty + 63) / 127 * 127).min(255)
}

/// `w83792d.c`, `store_pwm`: four bits.
fn w83792d(duty: u32) -> u32 {
    duty & 0xf0
}

/// The driver of all fans that rounds so.
macro_rules! rounds {
    ($to:ident) => {
        (stringify!($to), $to, |file, text| {
            let is_duty = is(file, "pwm1") || is(file, "pwm2");
            let duty = text.parse().ok().filter(|_| is_duty).map($to);
            Ok(duty.map_or(text.to_owned(), |duty| duty.to_string()))
        })
    };
}

type Rounds = (&'static str, fn(u32) -> u32, Driver);

#[test]
fn a_duty_that_is_rounded_is_set_with_as_much_air_as_asked_or_more() {
    let all: [Rounds; 4] = [rounds!(gpio), rounds!(thinkpad), rounds!(dell), rounds!(w83792d)];
    for (name, round, driver) in all {
        let tree = intel().driven(driver);
        let most = round(255);
        tree.put(DUTY, round(120)).put(&DUTY.replace('1', "2"), most);
        let mut bench = Bench::new(tree);
        let before = bench.tree.settings();
        let trials = bench.host.contact(&State::open(bench.state.path()).unwrap());
        let fan = trials.iter().find(|trial| trial.of == "fan_duty").unwrap();
        assert_eq!(fan.verdict, Verdict::Works, "{name}");
        assert_eq!(changed(&bench.tree, &before), [""; 0], "{name}");
        assert_eq!(bench.tree.get(DUTY), round(120).to_string(), "{name}");
        let mut request = bench.request();
        for tenth in 1..=10 {
            let (share, asked) = (f64::from(tenth) / 10.0, (tenth * 255_u32).div_ceil(10));
            request.fan_duty.ask(0, share, "test:");
            let outcome = bench.apply(&request).of(Control::FanDuty, 0);
            assert_eq!(outcome, Outcome::Done, "{name} {share}");
            let duty = bench.tree.get(DUTY).parse::<u32>().unwrap();
            assert!(duty + 4 >= asked.min(most), "{name}: {asked} was asked, {duty} is set");
            let steps: Vec<_> = (0..256).map(round).filter(|step| *step >= asked).collect();
            let next = steps.first().copied().unwrap_or(most);
            assert!(duty <= next, "{name}: {asked} was asked, {duty} is set, not {next}");
        }
        assert_eq!(bench.restoration().count(failed), 0, "{name}");
        assert_eq!(changed(&bench.tree, &before), [""; 0], "{name}");
        assert_eq!(bench.tree.get(DUTY), round(120).to_string(), "{name}");
    }
}

/// A fan that does not move is none that rounds.
#[test]
fn a_duty_that_stays_lower_is_refused() {
    let tree = intel().driven(|file, text| {
        let is_duty = is(file, "pwm1") || is(file, "pwm2");
        Ok(if is_duty { "102" } else { text }.to_owned())
    });
    tree.put(&DUTY.replace('1', "2"), 102);
    let mut bench = Bench::new(tree);
    let trials = bench.host.contact(&State::open(bench.state.path()).unwrap());
    let fan = trials.iter().find(|trial| trial.of == "fan_duty").unwrap();
    assert!(matches!(fan.verdict, Verdict::Refused(_)), "{fan}");
    assert_eq!([bench.tree.get(MODE), bench.tree.get(DUTY)], ["2", "102"]);
}

/// What was refused counts for as long as it is asked for.
#[test]
fn a_refusal_is_over_once_nothing_is_asked() {
    let tree = intel().driven(|file, text| match is(file, "scaling_max_freq") && text < "3" {
        true => Err(Errno::INVAL.into()),
        false => Ok(text.to_owned()),
    });
    let mut bench = Bench::new(tree);
    let mut request = bench.request();
    request.frequency.ask(0, Hertz(2.0e9), "test:");
    assert_eq!(bench.apply(&request).of(Control::Frequency, 0), Outcome::Refused);
    assert_eq!(bench.host.failing(), 8);
    request.frequency.release(0);
    assert_eq!(bench.apply(&request).of(Control::Frequency, 0), Outcome::Done);
    assert_eq!((bench.host.failing(), bench.tree.get(CEILING)), (0, "3400000".to_owned()));
}

/// What was never changed needs no giving back; why it cannot be is said once, with what to do.
#[test]
fn a_sys_that_is_read_only_is_as_it_was_found() {
    let tree = intel().driven(|_, _| Err(Errno::ROFS.into()));
    let mut bench = Bench::new(tree);
    let before = bench.tree.settings();
    let trials = bench.host.contact(&State::open(bench.state.path()).unwrap());
    let said: Vec<_> = trials.iter().map(ToString::to_string).collect();
    let said = said.concat();
    assert!(said.contains("scaling_max_freq: it is mounted read-only"), "{said}");
    assert_eq!(said.matches("run ebb on the host, or mount it read-write").count(), 1, "{said}");
    let mut request = bench.request();
    request.frequency.ask(0, Hertz(2.0e9), "test:");
    assert_eq!(bench.apply(&request).of(Control::Frequency, 0), Outcome::Refused);
    // After a kill, and in order.
    let done = bench.restoration();
    assert_eq!(done.count(|outcome| *outcome != RestoreOutcome::Already), 0, "{done:#?}");
    let mut bench = Bench::new(bench.tree);
    bench.apply(&request);
    bench.host.let_go().unwrap();
    assert_eq!(bench.restore(), []);
    assert_eq!(changed(&bench.tree, &before), [""; 0]);
}

/// What was changed before it became read-only is not as it was found.
#[test]
fn what_is_read_only_and_otherwise_stays_saved() {
    let mut bench = Bench::new(intel());
    let mut request = bench.request();
    request.frequency.ask(0, Hertz(2.0e9), "test:");
    bench.apply(&request);
    bench.tree = bench.tree.driven(|_, _| Err(Errno::ROFS.into()));
    let done = bench.restoration();
    assert_eq!(done.count(failed), 8, "{done:#?}");
    assert_eq!(done.remedies().len(), 1);
}

/// The file of a highest frequency shows the lowest of all limits (`include/linux/freq_qos`).
fn in_force(file: &Path, text: &str) -> io::Result<String> {
    let most = fs::read_to_string(file.with_file_name("cpuinfo_max_freq")).unwrap_or_default();
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let both = number(text).zip(number(&most)).filter(|_| is(file, "scaling_max_freq"));
    Ok(both.map_or(text.to_owned(), |(asked, most)| asked.min(most).to_string()))
}

#[test]
fn a_frequency_that_something_else_limits_is_given_back() {
    let mut bench = Bench::new(intel().driven(in_force));
    let mut request = bench.request();
    request.frequency.ask(0, Hertz(2.0e9), "test:");
    bench.apply(&request);
    // Somebody turns turbo off, and Ebb is killed.
    for core in 0..8 {
        let most = CEILING.replace("policy0/scaling", &format!("policy{core}/cpuinfo"));
        bench.tree.put(&most, 2_400_000);
    }
    let done = bench.restoration();
    let limited = |outcome: &RestoreOutcome| matches!(outcome, RestoreOutcome::Limited { .. });
    assert_eq!((done.count(failed), done.count(limited)), (0, 8), "{done:#?}");
    assert!(format!("{done:?}").contains("limited to '2400000' now by"), "{done:#?}");
    assert_eq!((bench.tree.get(CEILING).as_str(), bench.restore().len()), ("2400000", 0));
    // What was set before that is nobody's change, neither while it is set nor once it is released.
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path()).unwrap();
    let tree = intel().driven(in_force);
    let (mut host, _) = act(&tree, &state, Contest::Yield);
    cycle(&mut host, |request| request.frequency.ask(0, Hertz(3.0e9), "test:"));
    for core in 0..8 {
        let file = CEILING.replace("policy0", &format!("policy{core}"));
        tree.put(&file.replace("scaling", "cpuinfo"), 2_400_000).put(&file, 2_400_000);
    }
    for _ in 0..9 {
        cycle(&mut host, |request| request.frequency.ask(0, Hertz(3.0e9), "test:"));
    }
    assert_eq!((host.notices(), host.failing()), (Vec::new(), 0));
    assert_eq!(compare(&tree.with_drives(), &state).unwrap().differing, []);
    let applied = cycle(&mut host, |_| ());
    assert_eq!(applied.of(Control::Frequency, 0), Outcome::Done);
    assert_eq!(restore(&tree.with_drives(), &state, None).unwrap().count(failed), 0);
}

/// A disk that stops at once, or never: the delay is nothing without the rest, nor the rest without
/// the delay.
#[test]
fn a_disk_is_told_to_stop_in_whole_or_not_at_all() {
    let device = "sys/devices/ata/0:0:0:0";
    let files = ["power/autosuspend_delay_ms", "scsi_disk/0:0:0:0/manage_runtime_start_stop"];
    let [delay, stop, control] =
        [files[0], files[1], "power/control"].map(|file| format!("{device}/{file}"));
    let holds = Holds { disk_standby: Some(Nanos::from_secs(1200)), ..Holds::default() };
    let drivers: [Driver; 2] = [
        |file, text| match is(file, "autosuspend_delay_ms") && text != "0" {
            true => Err(Errno::IO.into()),
            false => Ok(text.to_owned()),
        },
        |file, text| match is(file, "power/control") && text == "auto" {
            true => Err(Errno::IO.into()),
            false => Ok(text.to_owned()),
        },
    ];
    for driver in drivers {
        for contact in [true, false] {
            let tree = intel().driven(driver);
            tree.disk("sda", "naa.5000c500d5f1a2b3");
            tree.put(&delay, 0).put(&stop, 0).put(&control, "on");
            let mut bench = holding(tree, &holds);
            let before = bench.tree.settings();
            if contact {
                let trials = bench.host.contact(&State::open(bench.state.path()).unwrap());
                let said = trials.last().unwrap().to_string();
                assert!(said.starts_with("disk_standby is refused and not used"), "{said}");
            }
            for _ in 0..2 {
                bench.apply(&bench.request());
                assert_eq!(changed(&bench.tree, &before), [""; 0]);
            }
            assert!(contact || bench.host.failing() > 0);
        }
    }
}
