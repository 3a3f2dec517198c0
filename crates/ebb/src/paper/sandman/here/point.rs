//! One scheduler at one load, measured.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use schemars::JsonSchema;
use serde::Serialize;

use ebb_bench::latency::Latency;
use ebb_bench::load::{Load, LoadArgs};
use ebb_cli::progress::Progress;
use ebb_policy::units::Nanos;
use ebb_target::reactor::{CoreTotals, Snapshot, probe};
use ebb_twin::reactor::Profile;

use super::cases::{Case, Pace};
use crate::serve::energy::{Model, Rapl};
use crate::serve::{Options, Server};

/// Shares of the maximum between bursts and in them, as in the twin's evaluation.
const REST: f64 = 0.02;
const BURST: f64 = 0.6;
/// The longest burst (slides: a second).
const LONGEST_BURST: Nanos = Nanos::from_secs(1);
/// Memory served, all of it written before anything is measured.
const MEMORY: &str = "ram:64MiB";
const RAID: &str = "raid5:ram:64MiB,ram:64MiB,ram:64MiB,create";
/// Connections for each of the target's cores: one for each of its lightweight threads.
const CONNECTIONS: usize = 4;
/// Windows of 500 round trips of a cache line.
const WINDOWS: u64 = 20;

/// A command line of `ebb load`.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: LoadArgs,
}

/// Where points are measured.
pub struct Lab {
    pub target: Vec<usize>,
    pub load: Vec<usize>,
    /// Time counted of each point.
    pub duration: Nanos,
    pub seed: u64,
    /// What energy is modelled from where it cannot be measured.
    pub profile: Profile,
    pub powercap: Option<PathBuf>,
}

/// Percentiles, in microseconds.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct Latencies {
    pub p50: f64,
    pub p99: f64,
    #[serde(rename = "p99.9")]
    pub p999: f64,
}

impl Latencies {
    fn of(latency: &Latency) -> Option<Self> {
        let micros = |percent| latency.percentile(percent) as f64 / 1e3;
        let these = Self { p50: micros(50.0), p99: micros(99.0), p999: micros(99.9) };
        (latency.count() > 0).then_some(these)
    }
}

/// What the target's cores did, as shares of their time.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Residency {
    /// In polls that found work.
    #[schemars(range(max = 1))]
    pub busy: f64,
    /// In polls that found none.
    #[schemars(range(max = 1))]
    pub wasted: f64,
    #[schemars(range(max = 1))]
    pub dozing: f64,
    #[schemars(range(max = 1))]
    pub blocked: f64,
    #[schemars(range(max = 1))]
    pub napping: f64,
}

/// One scheduler at one load in one round.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Point {
    #[schemars(extend("enum" = ["idle", "stable", "bursts", "raid-5", "cloud"]))]
    pub figure: &'static str,
    pub load: String,
    pub scheduler: &'static str,
    pub round: usize,
    /// Before and after.
    pub cache_line_ns: [u64; 2],
    /// Requests per second answered; absent where none were sent.
    pub iops: Option<f64>,
    pub latency_us: Option<Latencies>,
    /// Requests that were due and never sent.
    pub unsent: u64,
    pub cores: Residency,
    /// Measured: by RAPL, whole packages, the load's cores included; modelled: from the
    /// residencies, the target's cores above the idle machine.
    #[schemars(extend("enum" = ["measured", "modelled"]))]
    pub energy_source: &'static str,
    pub power_w: f64,
}

impl Lab {
    /// The most requests per second that busy polling answers.
    pub fn most(&self, raid: bool) -> Result<f64> {
        let server = self.serve("static", raid)?;
        let pace = ["--queue-depth".to_owned(), "32".to_owned()];
        let mut load = self.connect(&server, raid, &pace)?;
        let latency = drive(&mut load)?;
        load.close();
        server.stop();
        Ok(latency.iops)
    }

    /// Measures one point; bursts are a second one, of their beginnings.
    pub fn measure(
        &self,
        case: &Case,
        scheduler: &'static str,
        round: usize,
        most: f64,
    ) -> Result<Vec<Point>> {
        let before = self.distance()?;
        let server = self.serve(scheduler, case.raid)?;
        let mut load = self.connect(&server, case.raid, &self.pace(&case.pace, most))?;
        // What settles only after a while has done so by then.
        let settle = Duration::from_nanos(self.settle().0);
        let (driven, (mut rapl, from)) = std::thread::scope(|scope| {
            let begun = scope.spawn(|| {
                std::thread::sleep(settle);
                (Rapl::open(self.powercap()), server.snapshot())
            });
            let driven = match case.pace {
                Pace::Idle => {
                    std::thread::sleep(settle + Duration::from_nanos(self.duration.0));
                    Ok(None)
                }
                _ => drive(&mut load).map(Some),
            };
            let begun = begun.join().map_err(|_| anyhow!("looking at the target failed"))?;
            Ok::<_, anyhow::Error>((driven?, begun))
        })?;
        let to = server.snapshot();
        rapl.sample();
        let mut model = Model::new(self.profile.clone(), &server.machine);
        load.close();
        server.stop();
        let (energy_source, power_w) = power(&rapl, &mut model, [&from, &to]);
        let mut point = Point {
            figure: case.figure,
            load: case.label.clone(),
            scheduler,
            round,
            cache_line_ns: [before, self.distance()?],
            iops: driven.as_ref().map(|driven| driven.iops),
            latency_us: driven.as_ref().and_then(|driven| driven.all),
            unsent: driven.as_ref().map_or(0, |driven| driven.unsent),
            cores: residency(&from, &to),
            energy_source,
            power_w,
        };
        let mut points = vec![point.clone()];
        if matches!(case.pace, Pace::Bursts) {
            point.load = "first 10 ms of bursts".to_owned();
            (point.latency_us, point.iops) = (driven.and_then(|driven| driven.onset), None);
            point.unsent = 0; // Counted above.
            points.push(point);
        }
        Ok(points)
    }

    /// Time before that: two coarse steps, with the usual duration.
    fn settle(&self) -> Nanos {
        Nanos(self.duration.0 / 2)
    }

    fn whole(&self) -> Nanos {
        self.settle() + self.duration
    }

    fn powercap(&self) -> &std::path::Path {
        self.powercap.as_deref().unwrap_or(crate::serve::energy::POWERCAP.as_ref())
    }

    /// How far the CPUs are from each other: on shared machines it changes within seconds.
    fn distance(&self) -> Result<u64> {
        let mut times = probe::ping_pong([self.target[0], self.load[0]], WINDOWS)?;
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    fn serve(&self, scheduler: &str, raid: bool) -> Result<Server> {
        let options = Options {
            listen: vec![([127, 0, 0, 1], 0).into()],
            cores: Some(list(&self.target)),
            scheduler: Some(scheduler.to_owned()),
            namespace: vec![if raid { RAID } else { MEMORY }.to_owned()],
            ..Options::default()
        };
        Server::start(&options, &Progress::new(true))
    }

    /// `ebb load` as a user would call it, connected, with all of the namespace written.
    fn connect(&self, server: &Server, raid: bool, pace: &[String]) -> Result<Load> {
        let address = server.address().context("the target has no address")?.to_string();
        let connections = (CONNECTIONS * self.target.len()).max(self.load.len()).to_string();
        let (cores, seed) = (list(&self.load), self.seed.to_string());
        let (settle, all) = (self.settle().to_string(), self.whole().to_string());
        let mut words = vec!["load", "--connect", &address, "--cores", &cores, "--poll"];
        words.extend(["--connections", &connections, "--seed", &seed, "--duration", &all]);
        words.extend(["--warmup", &settle]);
        if raid {
            words.extend(["--rw", "randrw", "--mix", "70"]);
        }
        words.extend(pace.iter().map(String::as_str));
        let Line { args } = Line::try_parse_from(&words)?;
        let mut load = Load::connect(&args, Progress::new(true))?;
        match load.fill()? {
            Some(early) => Err(anyhow!("filling the namespace: {early}")),
            None => Ok(load),
        }
    }

    fn pace(&self, pace: &Pace, most: f64) -> Vec<String> {
        let rate = |share: f64| format!("{:.0}", (share * most).max(1.0));
        match pace {
            Pace::Idle => vec![],
            Pace::Share(share) => vec!["--rate".to_owned(), rate(*share)],
            Pace::Bursts => {
                let length = Nanos(self.duration.0 / 4).min(LONGEST_BURST);
                let burst = format!("{length} every {} at {}", self.whole(), rate(BURST));
                vec!["--rate".to_owned(), rate(REST), "--burst".to_owned(), burst]
            }
            Pace::Trace(trace) => vec!["--trace".to_owned(), trace.display().to_string()],
        }
    }
}

/// CPUs as options take them.
fn list(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// What the client saw.
struct Driven {
    iops: f64,
    unsent: u64,
    all: Option<Latencies>,
    onset: Option<Latencies>,
}

fn drive(load: &mut Load) -> Result<Driven> {
    let (measured, early) = load.measure()?;
    if let Some(early) = early {
        bail!("{early}");
    }
    if measured.failed() > 0 {
        bail!("{} requests failed", measured.failed());
    }
    let latency = measured.latency()?;
    Ok(Driven {
        iops: latency.count() as f64 / measured.elapsed().as_secs_f64().max(1e-9),
        unsent: measured.unsent(),
        all: Latencies::of(&latency),
        onset: measured.onset().and_then(Latencies::of),
    })
}

/// Mean power: of whole packages by RAPL, or of the target's cores by the model.
fn power(rapl: &Rapl, model: &mut Model, [from, to]: [&Snapshot; 2]) -> (&'static str, f64) {
    let totals = |snapshot: &Snapshot| -> Vec<CoreTotals> {
        snapshot.cores.iter().map(|core| core.totals).collect()
    };
    let span = (to.at.seconds() - from.at.seconds()).max(1e-9);
    // Domains within a package would count twice.
    let packages = rapl.energies().filter(|(domain, ..)| !domain.contains('/'));
    let measured: Vec<f64> = packages.map(|(_, joules, _)| joules).collect();
    if !measured.is_empty() {
        return ("measured", measured.iter().sum::<f64>() / span);
    }
    model.advance(&totals(from));
    let before: f64 = model.joules().iter().sum();
    model.advance(&totals(to));
    ("modelled", (model.joules().iter().sum::<f64>() - before) / span)
}

fn residency(from: &Snapshot, to: &Snapshot) -> Residency {
    let sum = |time: fn(&CoreTotals) -> Nanos| -> f64 {
        let of = |snapshot: &Snapshot| -> f64 {
            snapshot.cores.iter().map(|core| time(&core.totals).seconds()).sum()
        };
        of(to) - of(from)
    };
    let times: [f64; 5] = [
        sum(|totals| totals.busy),
        sum(|totals| totals.wasted),
        sum(|totals| totals.asleep[0]),
        sum(|totals| totals.asleep[1]),
        sum(|totals| totals.asleep[2]),
    ];
    let all = times.iter().sum::<f64>().max(1e-9);
    let [busy, wasted, dozing, blocked, napping] = times.map(|time| time / all);
    Residency { busy, wasted, dozing, blocked, napping }
}
