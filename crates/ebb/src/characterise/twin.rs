//! The sweep in the twin: the server runs once at each fan duty.

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

use ebb_cli::parallel::in_parallel;
use ebb_cli::progress::Progress;
use ebb_cli::{interrupt, out, usage};
use ebb_policy::cooling::Curve;
use ebb_policy::cpu::Native;
use ebb_policy::units::Nanos;
use ebb_policy::{Request, Topology};
use ebb_trace::generate;
use ebb_twin::{Observer, Run, Sample};

use super::{CharacteriseArgs, duties, ending};
use crate::curve;
use crate::server::Server;

/// One step of a sweep.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Step {
    /// PWM duty.
    #[schemars(range(max = 1))]
    pub duty: f64,
    /// Bytes per second written.
    pub bytes_per_second: f64,
    /// Share of the most at any duty.
    #[schemars(range(max = 1))]
    pub throughput: f64,
}

/// What is printed as JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report<'a> {
    #[schemars(extend("const" = 1))]
    schema: u32,
    #[schemars(extend("const" = true))]
    simulated: bool,
    profile: &'a str,
    seed: u64,
    /// By rising fan duty.
    #[schemars(length(min = 2))]
    steps: &'a [Step],
    /// Duty at which disks begin to feel the fans; 1 where they do not.
    #[schemars(range(min = 0, max = 1))]
    knee: f64,
}

/// Sweeps and prints.
pub fn run(args: &CharacteriseArgs) -> Result<()> {
    interrupt::watch()?;
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
        let points = steps.iter().map(|step| (step.duty, step.throughput)).collect();
        curve::write(path, source, points)?;
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
    text + &ending(curve)
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
        let duties: Vec<_> = duties(fan.min_duty, self.step).rev().collect();
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
        let workload = spec.build(&server.context(&spec, self.seed))?;
        let run = Run {
            operator: Some(hold_fans(&server.topology, duty)),
            duration: Some(settle + self.pause),
            warmup: settle,
            ..Run::of(&server.profile, Box::new(Native), workload, self.seed)
        };
        let outcome = ebb_twin::run(run, &mut held)?;
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
}
