//! Sweeps of a modelled machine, in modelled time.

use std::cell::RefCell;
use std::fs;
use std::io::Write;
use std::path::Path;

use ebb_host::SweepError;
use ebb_policy::cooling::Curve;
use ebb_policy::units::{Celsius, Rpm};

use super::super::bench::LOOK;
use super::super::report::{Named, Report};
use super::super::steps::Head;
use super::*;

/// Fans that follow their duty with a lag, disks that are slower the faster fans turn.
#[derive(Default)]
struct Model {
    now: Duration,
    duty: Option<f64>,
    rpm: f64,
    reads: Option<f64>,
    /// Duties that were measured, the fans' speed when that began.
    begun: Vec<(f64, f64)>,
    released: u32,
    /// Between these times users read the second disk.
    users: Vec<(u64, u64)>,
    /// When it becomes too warm, when the operator ends it.
    hot: Option<u64>,
    /// Duty at which one disk's throughput rises.
    odd: Option<f64>,
    /// Throughput lost in a second.
    fades: f64,
    /// The first disk does not answer, the fan's speed never settles.
    silent: bool,
    restless: bool,
    /// The fan knows these duties alone.
    knows: &'static [f64],
}

/// The shape of Fig. 5: flat up to 40 %.
fn share(duty: f64) -> f64 {
    1.0 - (duty - 0.4).max(0.0)
}

impl Model {
    fn users(&self) -> bool {
        let now = self.now.as_secs();
        self.users.iter().any(|(from, to)| (*from..*to).contains(&now))
    }
}

impl Bench for Model {
    fn set(&mut self, duty: f64) -> Result<f64> {
        let duty = self.knows.iter().copied().find(|known| *known >= duty).unwrap_or(duty);
        self.duty = Some(duty);
        Ok(duty)
    }

    fn read(&mut self, _attempt: u64) -> Result<()> {
        self.reads = Some(0.0);
        self.begun.push((self.duty.unwrap(), self.rpm));
        Ok(())
    }

    fn stop(&mut self) {}

    fn look(&mut self) -> Result<Look> {
        self.now += LOOK;
        if self.hot.is_some_and(|at| self.now.as_secs() >= at) {
            let (of, now, most) = ("sda".to_owned(), Celsius(56.0), Celsius(55.0));
            return Err(SweepError::Hot { of, now, most }.into());
        }
        let duty = self.duty.unwrap_or(0.3);
        self.rpm += (10_000.0 * duty - self.rpm) * 0.4;
        // The disks feel the fans' speed.
        let is = if self.odd == Some(duty) { 1.2 } else { share(self.rpm / 10_000.0) };
        let rate = 6e6 * is * (1.0 - self.fades * self.now.as_secs_f64());
        if let Some(read) = &mut self.reads {
            *read += rate * LOOK.as_secs_f64();
        }
        let foreign = self.users();
        let read = self.reads.unwrap_or_default() as u64;
        let disk = DiskLook { read, is_busy: false, foreign: false };
        let sways = if self.restless { self.now.as_secs_f64() % 2.0 } else { 1.0 };
        let speeds = self.duty.map(|_| Some(Rpm(self.rpm * sways))).into_iter().collect();
        let first = DiskLook { read: if self.silent { 0 } else { read }, ..disk };
        Ok(Look { at: self.now, speeds, disks: vec![first, DiskLook { foreign, ..disk }] })
    }

    fn release(&mut self) -> Result<()> {
        (self.duty, self.reads) = (None, None);
        self.released += 1;
        Ok(())
    }
}

fn head() -> Head {
    Head {
        schema: super::super::steps::SCHEMA,
        disks: vec!["naa.1".to_owned(), "naa.2".to_owned()],
        fans: vec!["pwm1 of nct6798".to_owned()],
        from: 0.2,
        step: 0.2,
        pause_ns: 20_000_000_000,
        seed: 1,
    }
}

const DUTIES: [f64; 6] = [1.0, 0.8, 0.6, 0.4, 0.2, 1.0];

fn steps(path: Option<&Path>) -> Steps {
    Steps::open(path, head(), &DUTIES).unwrap()
}

/// Sweeps `model`; how it ended, and what was said.
fn swept(model: &mut Model, steps: &mut Steps) -> (Result<()>, String) {
    let said = RefCell::new(String::new());
    let sweep = Sweep {
        duties: &DUTIES,
        pause: Duration::from_secs(20),
        wait: Duration::from_secs(120),
        disks: &["sda".to_owned(), "sdb".to_owned()],
        say: &|text| said.borrow_mut().push_str(&text),
    };
    let done = sweep.run(model, steps);
    (done, said.into_inner())
}

fn report(steps: &Steps) -> Report<'_> {
    let named = |name: &str| Named::new(name, "ST18", &format!("naa.{name}"));
    Report::of(vec![named("sda"), named("sdb")], steps)
}

#[test]
fn a_disk_that_feels_its_fans_gives_a_curve_with_its_knee() {
    let (mut model, mut steps) = (Model::default(), steps(None));
    let (done, said) = swept(&mut model, &mut steps);
    done.unwrap();
    assert!(said.contains("fans at 80 %, 8001 rpm: 7.20 MB/s"), "{said}");
    let report = report(&steps);
    let curve = Curve::new(report.points()).unwrap();
    assert!((curve.knee() - 0.4).abs() < 1e-9, "{curve:?}");
    for duty in [0.2, 0.4, 0.6, 0.8, 1.0] {
        // What the fans still had to go when they counted as steady.
        assert!((curve.throughput(duty) - share(duty)).abs() < 0.005, "{duty}: {curve:?}");
    }
    let text = report.text();
    assert!(text.contains("above 40 %") && !text.contains("Drift"), "{text}");
    assert_eq!(model.released, 1);
}

/// dell-smm knows three or four speeds, and takes the next one.
#[test]
fn fans_with_few_speeds_give_a_point_for_each_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("curve.toml.steps");
    let mut model = Model { knows: &[0.4, 0.7, 1.0], ..Model::default() };
    let mut kept = steps(Some(&path));
    let (done, said) = swept(&mut model, &mut kept);
    done.unwrap();
    assert!(said.contains("fans at 70 % (the next speed that they know), 7001 rpm"), "{said}");
    let points = report(&kept).points();
    let duties: Vec<_> = points.iter().map(|(duty, _)| *duty).collect();
    assert_eq!(duties, [0.4, 0.7, 1.0]);
    for (duty, throughput) in points {
        assert!((throughput - share(duty)).abs() < 0.005, "{duty}: {throughput}");
    }
    // It goes on where it was, by the duties that were asked for.
    assert_eq!(steps(Some(&path)).done(), kept.done());
}

/// What was measured while others used a disk does not count, and the fans are the board's while
/// that lasts.
#[test]
fn users_io_drops_a_measurement_and_is_waited_for() {
    let mut model = Model { users: vec![(40, 42), (60, 100)], ..Model::default() };
    let mut with = steps(None);
    let (done, said) = swept(&mut model, &mut with);
    done.unwrap();
    assert!(said.contains("users' I/O on sdb: the measurement at 80 % is dropped"), "{said}");
    assert_eq!(model.released, 3);
    let measured: Vec<_> = model.begun.iter().map(|(duty, _)| *duty).collect();
    assert_eq!(measured, [1.0, 0.8, 0.8, 0.8, 0.6, 0.4, 0.2, 1.0]);
    let mut without = steps(None);
    swept(&mut Model::default(), &mut without).0.unwrap();
    let rate = |steps: &Steps| steps.done()[1].rate();
    assert!((rate(&with) / rate(&without) - 1.0).abs() < 0.005);
    // It does not wait for ever.
    let mut model = Model { users: vec![(40, u64::MAX)], ..Model::default() };
    let mut few = steps(None);
    let error = swept(&mut model, &mut few).0.unwrap_err().to_string();
    assert!(error.contains("users' I/O on sdb has not ended for 120s"), "{error}");
    assert!(few.done().len() < 2 && model.duty.is_none() && model.reads.is_none());
}

#[test]
fn heat_ends_it_with_the_fans_given_back_and_the_rest_is_measured_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("curve.toml.steps");
    let mut model = Model { hot: Some(70), ..Model::default() };
    let mut kept = steps(Some(&path));
    let error = swept(&mut model, &mut kept).0.unwrap_err().to_string();
    assert!(error.contains("sda is at 56") && error.contains("55"), "{error}");
    assert_eq!((model.duty, model.released), (None, 1));
    let before = kept.done().to_vec();
    assert!((1..5).contains(&before.len()));
    drop(kept);
    // A line that was being written when it was killed is measured again.
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(br#"{"duty":0.4,"rpm":40"#).unwrap();
    let mut model = Model::default();
    let mut kept = steps(Some(&path));
    assert_eq!(kept.done(), before);
    swept(&mut model, &mut kept).0.unwrap();
    assert_eq!(model.begun.len(), DUTIES.len() - before.len());
    assert_eq!(steps(Some(&path)).done(), kept.done());
    // Complete, nothing is set any more.
    let mut model = Model::default();
    swept(&mut model, &mut kept).0.unwrap();
    assert!(model.begun.is_empty());
}

#[test]
fn what_was_measured_of_something_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("curve.toml.steps");
    swept(&mut Model::default(), &mut steps(Some(&path))).0.unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let refused = |head: Head| Steps::open(Some(&path), head, &DUTIES).unwrap_err().to_string();
    let error = refused(Head { disks: vec!["naa.3".to_owned()], seed: 2, ..head() });
    assert!(error.contains("of other disks, --seed") && error.contains("remove"), "{error}");
    for (line, says) in [
        ("{}\n", "line 8"),
        ("nonsense\n", "line 8"),
        (text.lines().last().unwrap(), ""),
        (&format!("{}\n", text.lines().last().unwrap()), "not those of this sweep"),
    ] {
        fs::write(&path, format!("{text}{line}")).unwrap();
        match says {
            "" => assert_eq!(steps(Some(&path)).done().len(), DUTIES.len()),
            says => assert!(refused(head()).contains(says), "{}", refused(head())),
        }
    }
}

#[test]
fn a_throughput_that_rises_is_told_and_is_no_curve() {
    let mut steps = steps(None);
    swept(&mut Model { odd: Some(0.8), ..Model::default() }, &mut steps).0.unwrap();
    let report = report(&steps);
    let refused = report.refused.as_deref().unwrap();
    assert!(refused.contains("point 4") && refused.contains("faster fans"), "{refused}");
    assert!(report.text().contains("No curve: point 4"), "{}", report.text());
    let json = serde_json::to_value(&report).unwrap();
    assert!(json["knee"].is_null() && json["refused"].is_string());
}

#[test]
fn a_machine_that_changes_meanwhile_is_told() {
    let mut steps = steps(None);
    swept(&mut Model { fades: 0.0005, ..Model::default() }, &mut steps).0.unwrap();
    let text = report(&steps).text();
    assert!(text.contains("Drift: at full speed the disks did -"), "{text}");
}

/// A fan that does not settle, a disk that does not answer: neither is waited for for ever.
#[test]
fn what_does_not_settle_ends_it() {
    let silent = Model { silent: true, ..Model::default() };
    let restless = Model { restless: true, ..Model::default() };
    for (mut model, says) in [(silent, "sda answered no read in 60s"), (restless, "do not settle")]
    {
        let error = swept(&mut model, &mut steps(None)).0.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(model.released, 1);
    }
}
