//! `ebb characterise`: how fast a server's disks are at each fan speed, the curve that EADC uses
//! (Fig. 5). In the twin only; docs/cli.md says what a real machine would need.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use ebb_policy::cooling::{Curve, CurveError};
use ebb_policy::cpu::Native;
use ebb_policy::units::{Nanos, parse_ratio};
use ebb_policy::{Limits, PERIOD, Request, Topology};
use ebb_trace::files;
use ebb_trace::generate;
use ebb_twin::{Observer, Run, Sample};

use crate::exit::usage;
use crate::interrupt;
use crate::out;
use crate::output;
use crate::parallel::in_parallel;
use crate::progress::Progress;
use crate::server::Server;

/// Options of `ebb characterise`.
///
/// Runs the server once at each fan duty while the disks do nothing but random writes, and prints
/// what is left of their throughput at each.
#[derive(Debug, Args)]
pub struct CharacteriseArgs {
    /// Server: a shipped profile with fans and hard disks, or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "eadc-e6")]
    profile: String,
    /// Step between fan duties, as 0.1 or 10%
    #[arg(long, value_name = "SHARE", value_parser = parse_ratio, default_value = "10%")]
    step: f64,
    /// Time measured at each duty, after half as long to settle
    #[arg(long, value_name = "TIME", default_value = "20 s")]
    pause: Nanos,
    /// Seed of everything random
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Write the curve to this TOML file, for `ebb sim --curve`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Concurrent runs; the results are the same for any number [default: all cores]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

/// A curve as it is kept in a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CurveFile<Points> {
    /// Where it comes from, for people.
    #[serde(default)]
    source: String,
    /// (fan duty, share of the most that the disks did), by rising duty.
    points: Points,
}

/// Points with their places in the text.
type Placed = Spanned<Vec<Spanned<(f64, f64)>>>;

/// One step of a sweep.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Step {
    /// PWM duty, 0 to 1.
    pub duty: f64,
    /// Bytes per second written.
    pub bytes_per_second: f64,
    /// The same as a share of the most at any duty.
    pub throughput: f64,
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    schema: u32,
    simulated: bool,
    profile: &'a str,
    seed: u64,
    steps: &'a [Step],
    /// Duty at which disks begin to feel the fans.
    knee: f64,
}

/// Sweeps and prints.
pub fn run(args: &CharacteriseArgs) -> Result<()> {
    if let Some(path) = &args.out {
        output::check("--out", path)?;
    }
    interrupt::watch()?;
    if !(0.01..=0.5).contains(&args.step) {
        return Err(usage(format!("--step {}: give a share from 1% to 50%", args.step)));
    }
    if args.pause < PERIOD {
        return Err(usage(format!("--pause {}: give at least {PERIOD}", args.pause)));
    }
    let server = Server::load(&args.profile)?;
    let inertia = server.profile.fans.as_ref().map_or(Nanos::ZERO, |fans| fans.inertia);
    // Half of it for three time constants: 95 % of the way to the new speed.
    let settled = Nanos(inertia.0.saturating_mul(6));
    if args.pause < settled {
        let reason = format!("the fans' inertia is {inertia}: give at least {settled}");
        return Err(usage(format!("--pause {}: {reason}", args.pause)));
    }
    let sweep = Sweep {
        step: args.step,
        pause: args.pause,
        seed: args.seed,
        threads: args.threads,
        progress: &Progress::new(args.quiet),
    };
    let steps = sweep.run(&server)?;
    let curve = curve_of(&steps)?;
    if let Some(path) = &args.out {
        let source = format!("simulated: ebb characterise --profile {}", args.profile);
        let points: Vec<_> = steps.iter().map(|step| (step.duty, step.throughput)).collect();
        let text = toml::to_string(&CurveFile { source, points })?;
        output::write(path, |to| Ok(to.write_all(text.as_bytes())?))?;
    }
    if args.json {
        let report = Report {
            schema: 1,
            simulated: true,
            profile: &args.profile,
            seed: args.seed,
            steps: &steps,
            knee: curve.knee(),
        };
        out::json(&report)?;
    } else {
        out::print(text(&args.profile, &steps, &curve))?;
    }
    Ok(())
}

fn text(profile: &str, steps: &[Step], curve: &Curve) -> String {
    let mut text = format!("{profile}, simulated: random writes on all disks\n\n");
    text.push_str("fan duty       MB/s  of the most\n");
    for step in steps {
        let bar = "━".repeat((step.throughput * 40.0).round() as usize);
        let (duty, share) = (100.0 * step.duty, 100.0 * step.throughput);
        let megabytes = step.bytes_per_second * 1e-6;
        text.push_str(&format!("{duty:6.0} % {megabytes:10.1} {share:8.0} %     {bar}\n"));
    }
    text.push_str(&if curve.knee() < 1.0 {
        format!(
            "\nDisks feel the fans above {:.0} %: EADC keeps them there while disks are busy.\n",
            100.0 * curve.knee()
        )
    } else {
        "\nDisks do not feel the fans: temperature alone decides.\n".to_owned()
    });
    text
}

/// A sweep of the fans.
pub struct Sweep<'a> {
    /// Distance between duties.
    pub step: f64,
    /// Time measured at each.
    pub pause: Nanos,
    /// Seed.
    pub seed: u64,
    /// Runs at once; all cores when `None`.
    pub threads: Option<u16>,
    /// Where to show how far it is.
    pub progress: &'a Progress,
}

impl Sweep<'_> {
    /// Throughput by duty, from the lowest duty that turns the fans up to full speed; each is a
    /// run of its own.
    ///
    /// # Errors
    /// A server without fans, one that cannot be simulated, or one that does not keep its fans at
    /// a duty.
    pub fn run(&self, server: &Server) -> Result<Vec<Step>> {
        let Some(fan) = server.topology.fans.first() else {
            return Err(usage(format!(
                "profile '{}' has no [fans]: there is nothing to sweep; choose one that has, \
                 such as eadc-e6",
                server.profile.name
            )));
        };
        let least = fan.min_duty;
        let steps = ((1.0 - least) / self.step - 1e-9).ceil() as usize;
        let duties: Vec<_> =
            (0..=steps).rev().map(|n| (1.0 - n as f64 * self.step).max(least)).collect();
        let bar = self.progress.bar("fan sweep", Some(duties.len() as u64));
        let rates = in_parallel(duties.len(), self.threads, |index| {
            let rate = self.write(server, duties[index]);
            bar.inc(1);
            rate
        });
        bar.finish_and_clear();
        let rates = rates?;
        let most = rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let step = |(duty, rate): (f64, f64)| Step {
            duty,
            bytes_per_second: rate,
            throughput: rate / most,
        };
        Ok(duties.into_iter().zip(rates).map(step).collect())
    }

    /// Bytes per second that the disks write with the fans at `duty`.
    fn write(&self, server: &Server, duty: f64) -> Result<f64> {
        let spec = generate::by_name("eadc-io")?;
        let settle = Nanos(self.pause.0 / 2);
        let mut held = Held::new(duty, settle);
        let outcome = ebb_twin::run(
            Run {
                profile: &server.profile,
                policy: Box::new(Native),
                operator: Some(hold_fans(&server.topology, duty)),
                limits: Limits::default(),
                ssd_budget: None,
                changes: Vec::new(),
                workload: spec.build(&server.context(&spec, self.seed))?,
                jobs: Vec::new(),
                faults: None,
                senses: None,
                seed: self.seed,
                duration: Some(settle + self.pause),
                warmup: settle,
            },
            &mut held,
        )?;
        held.check(&server.profile.name)?;
        Ok(outcome.bytes as f64 / outcome.span.seconds())
    }
}

/// Most by which the mean duty in force may miss the one to be measured; well below the smallest
/// step.
const MISS: f64 = 0.002;

/// Watches whether the fans were at the duty that the throughput is booked for: the guard takes
/// them away from one under which the server gets too hot, and lets them slow down only so fast.
struct Held {
    duty: f64,
    /// End of settling.
    from: Nanos,
    /// Sum over fans and measured periods of the duty in force, its number of terms.
    sum: f64,
    count: f64,
    /// The last reason for which another one was in force in a measured period.
    reason: Option<&'static str>,
}

impl Held {
    fn new(duty: f64, from: Nanos) -> Self {
        Self { duty, from, sum: 0.0, count: 0.0, reason: None }
    }

    fn is_wanted(&self, duty: f64) -> bool {
        (duty - self.duty).abs() <= MISS
    }

    fn check(&self, profile: &str) -> Result<()> {
        let mean = self.sum / self.count;
        if self.is_wanted(mean) {
            return Ok(());
        }
        let (asked, mean) = (100.0 * self.duty, 100.0 * mean);
        let why = match self.reason {
            Some(reason @ "guard:fan-rate") => {
                format!("{reason}); it lets fans slow down only so fast: give a longer --pause")
            }
            Some(reason) => format!(
                "{reason}); the server gets too hot at this duty, so that the disks are never used \
                 at it: give [thermal] a cooler inlet or [fans] more air, or raise the first duty \
                 of pwm_to_rpm to the lowest that the server can be kept at"
            ),
            None => "not by a decision of the guard)".to_owned(),
        };
        Err(usage(format!(
            "profile '{profile}', fans at {asked:.0} %: {mean:.1} % were in force on average ({why}"
        )))
    }
}

impl Observer for Held {
    fn sample(&mut self, sample: &Sample<'_>) {
        if sample.cycled.signals.now <= self.from {
            return;
        }
        for (fan, signal) in sample.cycled.signals.cooling.fans.iter().enumerate() {
            let Some(duty) = signal.duty else { continue };
            self.sum += duty;
            self.count += 1.0;
            let given = sample.cycled.signals.in_force.fan_duty.at(fan);
            if !self.is_wanted(duty) && given.is_held() {
                self.reason = Some(given.reason);
            }
        }
    }
}

/// The curve through `steps`.
///
/// # Errors
/// Too few steps, or a throughput that rises.
pub fn curve_of(steps: &[Step]) -> Result<Curve> {
    Ok(Curve::new(steps.iter().map(|step| (step.duty, step.throughput)).collect())?)
}

/// Reads a curve that `ebb characterise --out` wrote.
///
/// # Errors
/// A file that cannot be read or is no curve.
pub fn read_curve(path: &Path) -> Result<Curve> {
    let text = files::text(path)
        .map_err(|error| usage(format!("{}: cannot read the curve: {error}", path.display())))?;
    let CurveFile::<Placed> { points, .. } = toml::from_str(&text)
        .map_err(|error| usage(format!("{}: {}", path.display(), error.to_string().trim_end())))?;
    let all = points.span().start;
    let (points, places): (Vec<_>, Vec<_>) =
        points.into_inner().into_iter().map(|point| (*point.as_ref(), point.span().start)).unzip();
    Curve::new(points).map_err(|error| {
        let place = match error {
            CurveError::Range { point, .. }
            | CurveError::Order { point, .. }
            | CurveError::Rising { point, .. } => places.get(point - 1).copied(),
            CurveError::Short(_) => None,
        };
        let line = 1 + text[..place.unwrap_or(all)].matches('\n').count();
        usage(format!("{}:{line}: {error}", path.display()))
    })
}

/// All fans held at one duty.
pub fn hold_fans(topology: &Topology, duty: f64) -> Request {
    let mut request = Request::new(topology);
    for fan in 0..topology.fans.len() {
        request.fan_duty.ask(fan, duty, "hold:fans");
    }
    request
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_what_the_guard_said_of_another_duty_is_given_as_its_reason() {
        let mut held = Held { sum: 1.0, count: 2.0, ..Held::new(0.2, Nanos::ZERO) };
        let told = |held: &Held| held.check("mine").unwrap_err().to_string();
        let message = told(&held);
        assert!(message.contains("'mine'") && message.contains("not by a decision"), "{message}");
        assert!(!message.contains("too hot"), "{message}");
        held.reason = Some("guard:hot-drive");
        assert!(told(&held).contains("too hot"));
    }

    #[test]
    fn a_curve_comes_back_from_its_file_and_a_wrong_one_is_told_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("curve.toml");
        fs::write(&path, "points = [[0.2, 1.0], [0.5, 0.97], [1.0, 0.4]]\n").unwrap();
        assert_eq!(read_curve(&path).unwrap().throughput(1.0), 0.4);
        for (text, line, says) in [
            ("points = [[0.2, 0.5], [0.5, 0.9]]", 1, "faster fans do not speed disks up"),
            ("points = [\n[0.2, 0.5],\n[0.5, 0.9],\n]", 3, "faster fans do not speed disks up"),
            ("source = \"x\"\n\npoints = [\n[0.5, 0.5],\n[0.2, 0.5]]", 5, "order the points"),
            ("points = [\n[0.2, 0.5],\n# more\n[0.5, nan]]", 4, "throughput is NaN"),
            ("points = [\n[0.2, 0.5], [0.5, 0.4],\n[40, 0.3]]", 3, "duty is 40"),
            ("# none\npoints = [[0.2, 0.5]]", 2, "at least two"),
            ("\npoint = []", 2, "unknown field"),
        ] {
            fs::write(&path, text).unwrap();
            let message = read_curve(&path).unwrap_err().to_string();
            let place = format!("curve.toml:{line}: ");
            // The TOML reader tells the line in its own words.
            let told = message.contains(&place) || message.contains(&format!("line {line},"));
            assert!(told && message.contains(says), "{message}");
        }
    }
}
