//! The policies by name: the one list that the command line, the reports and the docs read, and
//! the one place that says who owns which control.

use crate::cooling::{Curve, Dlb, Dtm, Eadc, EadcParams, EadcPlus, FixedFans, Jetc, PlusParams};
use crate::cpu::{Adaptors, Constant, Native, Ondemand, Pacer, PacerParams, PacerPlus};
use crate::server::{Pass, Reading, Thunderbolt, Tide};
use crate::ssd::{Apst, Pacman, PacmanPlus, Predictor, Sspc};
use crate::topology::Topology;
use crate::units::Watts;
use crate::{Control, Policy, PolicyError, Request, Settling, Signals, Steward};

mod caps;
pub(crate) mod stated;

pub use caps::{Both, both, split};
use stated::Param;
pub use stated::Stated;

/// What the operator states: the tolerated loss and the budget.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `plf`: tolerated relative increase of the mean I/O latency (PACER §IV-C).
    pub plf: f64,
    /// Tolerated relative increase of the 99th percentile, where it is sensed; any when `None`.
    pub tail: Option<f64>,
    /// Power the drives' caps may sum to; every drive in state 0 when `None`.
    pub ssd_budget: Option<Watts>,
    /// Power that the whole server may draw, for coordinators; any when `None`.
    pub server_budget: Option<Watts>,
    /// Disk throughput by fan duty (EADC Fig. 5); disks that do not feel the fans when `None`.
    pub curve: Option<Curve>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { plf: 0.2, tail: None, ssd_budget: None, server_budget: None, curve: None }
    }
}

/// Who owns what, by kind of policy; [`ENTRIES`] refers to it.
mod owns {
    use crate::Control::{self, *};

    pub const NOTHING: &[Control] = &[];
    pub const SPEED: &[Control] = &[ActiveCores, Frequency];
    pub const GOVERNOR: &[Control] = &[Frequency];
    /// Of the groups that serve users' I/O. Of those that run jobs nobody parks any.
    pub const CORES: &[Control] = &[ActiveCores, Frequency, Background];
    pub const DRIVES: &[Control] = &[PowerState];
    pub const AIR: &[Control] = &[FanDuty];
    pub const IDLE: &[Control] = &[IdleWake];
    pub const PLUS: &[Control] = &[ActiveCores, Frequency, Background, Recall, IdleWake];
    pub const FANS: &[Control] = &[FanDuty, JobSocket];
    pub const HEAT: &[Control] = &[FanDuty, JobSocket, JobShare];
    pub const CLIMATE: &[Control] = &[FanDuty, JobSocket, JobShare, FrequencyCap, Admit];
    pub const PASS: &[Control] =
        &[CoreLimit, PackageLimit, CpuTime, CpuPeriod, ReadRate, WriteRate];
    pub const TIDE: &[Control] =
        &[CoreLimit, FrequencyLimit, CpuTime, CpuPeriod, ReadRate, WriteRate, BestEffortRate];
    pub const TIME: &[Control] = &[CpuTime, CpuPeriod];
    pub const CLIMATE_PLUS: &[Control] = &[FanDuty, JobSocket, FrequencyCap, Admit];
}

/// A policy as listed by `ebb sim --list`.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// The controls that it sets; it changes no others.
    pub owns: &'static [Control],
    /// The parameters that may be stated after its name.
    pub takes: &'static [&'static str],
    settles: Settles,
    make: Make,
}

impl Entry {
    /// Why the policy sets nothing on this server under these settings; `None` where it does.
    #[must_use]
    pub fn idle(&self, topology: &Topology, settings: &Settings) -> Option<&'static str> {
        let capped = topology.drives.iter().any(|drive| drive.operational().len() > 1);
        let there = |control: &Control| match (control.row().steward, control) {
            (Steward::Cpu, _) => true,
            (Steward::Ssd, Control::IdleWake) => true,
            (Steward::Ssd, _) => capped,
            (Steward::Cooling, Control::Admit) => topology.jobs > 0,
            (Steward::Cooling, _) => control.row().domain.count(topology) > 0,
            (Steward::Server, _) => control.is_in(topology),
        };
        let capping = self.owns.iter().any(|control| control.row().steward == Steward::Server);
        if capping && settings.server_budget.is_none() {
            return Some("without a budget of the whole server it limits nothing");
        }
        if self.owns.is_empty() || self.owns.iter().any(there) {
            let budgeted = self.owns == owns::DRIVES && settings.ssd_budget.is_none();
            return budgeted.then_some("without a budget every drive keeps state 0");
        }
        Some(match self.owns {
            owns::DRIVES => "no drive of this server has a second power state",
            owns::AIR => "this server has no fans that it could set",
            _ if capping => "none of what it limits can be limited here",
            _ => "this server has no temperatures and no fans",
        })
    }
}

/// By the requests per second.
type Settles = fn(&Settings, f64) -> Settling;
/// What asks for the same from the start: the guard parks by halves, each half a second, and caps
/// of drives wait for one another; ten such steps.
const STEPS: Settles = |_, _| Settling::after(5);
/// The loops that steer by temperatures (`cooling/pi.rs`: minutes), past the slowest of them.
const WARM: Settles = |_, _| Settling::after(1_000);
/// Two of PACMAN's windows, and one to move (`ssd/pacman.rs`).
const CAPPING: Settles = |_, _| Settling::after(15);
/// Ten turns of PASS.
const SHARING: Settles = |_, _| Settling::after(50);
const PACING: Settles = |settings, iops| params(settings, &Stated::default()).settling(iops);

type Make = fn(&Topology, &Settings, &Stated) -> Result<Box<dyn Policy>, PolicyError>;

/// Every policy, in the order of the docs.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "native",
        summary: "everything on: all cores at the highest frequency, drives uncapped",
        owns: owns::NOTHING,
        takes: &[],
        settles: |_, _| Settling::AT_ONCE,
        make: |_, _, _| Ok(Box::new(Native)),
    },
    Entry {
        name: "constant",
        summary: "one fixed frequency and share of the cores: constant(ghz=2, cores=0.5)",
        owns: owns::SPEED,
        takes: &["ghz", "cores"],
        settles: STEPS,
        make: |topology, _, stated| {
            Ok(Box::new(Constant::new(topology, stated.get("ghz"), stated.get("cores"))?))
        },
    },
    Entry {
        name: "ondemand",
        summary: "Linux's governor: frequency by the utilisation of the busiest core",
        owns: owns::GOVERNOR,
        takes: &[],
        settles: |_, _| Settling::after(1),
        make: |topology, _, _| Ok(Box::new(Ondemand::new(topology))),
    },
    Entry {
        name: "pacer",
        summary: "cores and frequency follow the load within a tolerated latency increase (plf)",
        owns: owns::CORES,
        takes: PACER,
        settles: PACING,
        make: |topology, settings, stated| pacer(topology, settings, stated, Adaptors::Both),
    },
    Entry {
        name: "pacer-cores",
        summary: "PACER with its Core Adaptor only",
        owns: owns::CORES,
        takes: PACER,
        settles: PACING,
        make: |topology, settings, stated| pacer(topology, settings, stated, Adaptors::Cores),
    },
    Entry {
        name: "pacer-freq",
        summary: "PACER with its Freq Adaptor only",
        owns: owns::CORES,
        takes: PACER,
        settles: PACING,
        make: |topology, settings, stated| pacer(topology, settings, stated, Adaptors::Frequency),
    },
    Entry {
        name: "pacer-plus",
        summary: "our own variant: PACER with cores recalled within milliseconds, and idle drives",
        owns: owns::PLUS,
        takes: PACER,
        settles: |settings, iops| PacerPlus::settling(params(settings, &Stated::default()), iops),
        make: |topology, settings, stated| {
            Ok(Box::new(PacerPlus::new(topology, params(settings, stated))?))
        },
    },
    Entry {
        name: "apst",
        summary: "drives use idle states that wake up within the tolerated latency increase (plf)",
        owns: owns::IDLE,
        takes: &[],
        settles: |_, _| Settling::after(20),
        make: |topology, settings, _| Ok(Box::new(Apst::new(topology, settings.plf))),
    },
    Entry {
        name: "sspc",
        summary: "static storage power capping: one uniform drive cap that fits the budget",
        owns: owns::DRIVES,
        takes: &[],
        settles: STEPS,
        make: |topology, settings, _| Ok(Box::new(Sspc::new(topology, settings.ssd_budget)?)),
    },
    Entry {
        name: "pacman",
        summary: "drive caps follow the measured power of each drive, within a budget",
        owns: owns::DRIVES,
        takes: PACMAN,
        settles: CAPPING,
        make: |topology, settings, stated| {
            let alpha = stated.or("alpha", Predictor::ALPHA);
            let beta = stated.or("beta", Predictor::BETA);
            Ok(Box::new(Pacman::weighted((alpha, beta), topology, settings.ssd_budget)?))
        },
    },
    Entry {
        name: "pacman-mean",
        summary: "PACMAN predicting with the mean power alone",
        owns: owns::DRIVES,
        takes: &[],
        settles: CAPPING,
        make: |topology, settings, _| Ok(Box::new(Pacman::mean(topology, settings.ssd_budget)?)),
    },
    Entry {
        name: "pacman-ema",
        summary: "PACMAN predicting with an exponential moving average",
        owns: owns::DRIVES,
        takes: &[],
        settles: CAPPING,
        make: |topology, settings, _| Ok(Box::new(Pacman::ema(topology, settings.ssd_budget)?)),
    },
    Entry {
        name: "pacman-plus",
        summary: "our own variant: every half second, watts where they serve the most bytes",
        owns: owns::DRIVES,
        takes: &[],
        settles: CAPPING,
        make: |topology, settings, _| Ok(Box::new(PacmanPlus::new(topology, settings.ssd_budget)?)),
    },
    Entry {
        name: "fixed-fans",
        summary: "fans at one fixed duty, full speed by default: fixed-fans(duty=0.5)",
        owns: owns::AIR,
        takes: &["duty"],
        settles: STEPS,
        make: |topology, _, stated| Ok(Box::new(FixedFans::new(topology, stated.or("duty", 1.0))?)),
    },
    Entry {
        name: "dlb",
        summary: "jobs spread evenly, fans by a PI loop: the default that EADC is compared with",
        owns: owns::FANS,
        takes: &[],
        settles: WARM,
        make: |topology, _, _| Ok(Box::new(Dlb::new(topology))),
    },
    Entry {
        name: "dtm",
        summary: "jobs moved from the hottest socket and throttled near the emergency, PI fans",
        owns: owns::HEAT,
        takes: &[],
        settles: WARM,
        make: |topology, _, _| Ok(Box::new(Dtm::new(topology))),
    },
    Entry {
        name: "jetc",
        summary: "placement and fans together, at the lowest fan speed that keeps the limit",
        owns: owns::FANS,
        takes: &[],
        settles: WARM,
        make: |topology, _, _| Ok(Box::new(Jetc::new(topology))),
    },
    Entry {
        name: "eadc",
        summary: "fans, jobs and admission by temperature and by the disks' loss from vibration",
        owns: owns::CLIMATE,
        takes: EADC,
        settles: WARM,
        make: |topology, settings, stated| {
            let params = stated.applied(EADC_PARAMS, EadcParams::default());
            Ok(Box::new(Eadc::new(topology, settings.curve.clone(), &params)?))
        },
    },
    Entry {
        name: "eadc-plus",
        summary: "our own variant: fans and frequencies together, for the least energy per job",
        owns: owns::CLIMATE_PLUS,
        takes: PLUS,
        settles: WARM,
        make: |topology, settings, stated| {
            let params = stated.applied(PLUS_PARAMS, PlusParams::default());
            Ok(Box::new(EadcPlus::new(topology, settings.curve.clone(), &params)?))
        },
    },
    Entry {
        name: "pass",
        summary: "server budget by a table of CPU settings and a feedback loop, as published",
        owns: owns::PASS,
        takes: &[],
        settles: SHARING,
        make: |topology, _, _| Ok(Box::new(Pass::new(topology, Reading::Published))),
    },
    Entry {
        name: "pass-intended",
        summary: "PASS as its text means it: limits of drives stay, their watts count once",
        owns: owns::PASS,
        takes: &[],
        settles: SHARING,
        make: |topology, _, _| Ok(Box::new(Pass::new(topology, Reading::Intended))),
    },
    Entry {
        name: "thunderbolt",
        summary: "server budget by CPU time: cut at once near it, given back in small steps",
        owns: owns::TIME,
        takes: &[],
        settles: SHARING,
        make: |topology, _, _| Ok(Box::new(Thunderbolt::new(topology))),
    },
    Entry {
        name: "tide",
        summary: "our own: server budget to where its watts serve most, never more than it",
        owns: owns::TIDE,
        takes: &[],
        settles: SHARING,
        make: |topology, settings, _| Ok(Box::new(Tide::new(topology, settings.tail.is_some())?)),
    },
];

/// PACMAN's weights of deviation and slope (Algorithm 1, line 5).
const PACMAN: &[&str] = &["alpha", "beta"];
/// Those of PACER that can be stated; `plf` is an option of its own.
const PARAMS: [Param<PacerParams>; 8] = [
    ("alpha", |params| &mut params.alpha),
    ("beta", |params| &mut params.beta),
    ("burst_thresh", |params| &mut params.burst_thresh),
    ("deadband", |params| &mut params.deadband),
    ("gamma", |params| &mut params.gamma),
    ("max_utilisation", |params| &mut params.max_utilisation),
    ("stable_thresh", |params| &mut params.stable_thresh),
    ("unstable_thresh", |params| &mut params.unstable_thresh),
];
/// Those of EADC.
const EADC_PARAMS: [Param<EadcParams>; 7] = [
    ("cap_gain", |params| &mut params.cap_gain),
    ("cap_reset", |params| &mut params.cap_reset),
    ("cap_rise", |params| &mut params.cap_rise),
    ("fan_gain", |params| &mut params.fan_gain),
    ("fan_reset", |params| &mut params.fan_reset),
    ("hot_spot", |params| &mut params.hot_spot),
    ("set_point", |params| &mut params.set_point),
];
/// Those of its variant.
const PLUS_PARAMS: [Param<PlusParams>; 3] = [
    ("hot_spot", |params| &mut params.hot_spot),
    ("set_point", |params| &mut params.set_point),
    ("worth", |params| &mut params.worth),
];
const PACER: &[&str] = &names_of(PARAMS);
const EADC: &[&str] = &names_of(EADC_PARAMS);
const PLUS: &[&str] = &names_of(PLUS_PARAMS);

const fn names_of<P, const N: usize>(params: [Param<P>; N]) -> [&'static str; N] {
    let (mut names, mut at) = ([""; N], 0);
    while at < N {
        names[at] = params[at].0;
        at += 1;
    }
    names
}

fn params(settings: &Settings, stated: &Stated) -> PacerParams {
    let params = PacerParams { tail: settings.tail, ..PacerParams::for_plf(settings.plf) };
    stated.applied(PARAMS, params)
}

/// Whether a part of `name`, `a+b`, keeps [`Settings::tail`].
#[must_use]
pub fn keeps_tail(name: &str) -> bool {
    let takes = |part: &str| {
        entry(part).is_ok_and(|entry| entry.takes == PACER || entry.owns == owns::TIDE)
    };
    names(name).any(takes)
}

fn pacer(
    topology: &Topology,
    settings: &Settings,
    stated: &Stated,
    adaptors: Adaptors,
) -> Result<Box<dyn Policy>, PolicyError> {
    let params = PacerParams { adaptors, ..params(settings, stated) };
    Ok(Box::new(Pacer::new(topology, params)?))
}

/// The names of the policies in `name`, `a+b`, without their parameters.
pub fn names(name: &str) -> impl Iterator<Item = &str> {
    name.split('+').map(|part| stated::split(part).0)
}

/// The parts of `name`, `a+b`, that set nothing on this server, and why.
///
/// # Errors
/// Unknown names.
pub fn idle(
    name: &str,
    topology: &Topology,
    settings: &Settings,
) -> Result<Vec<(&'static str, &'static str)>, PolicyError> {
    let parts = names(name).map(entry).collect::<Result<Vec<_>, _>>()?;
    let idle = parts.iter().filter_map(|entry| Some((entry.name, entry.idle(topology, settings)?)));
    Ok(idle.collect())
}

/// When the policies of `name`, `a+b`, have settled under a steady load of `iops`.
///
/// # Errors
/// Unknown names.
pub fn settling(name: &str, settings: &Settings, iops: f64) -> Result<Settling, PolicyError> {
    let of = |part| Ok((entry(part)?.settles)(settings, iops));
    names(name).map(of).try_fold(Settling::AT_ONCE, |all, part| Ok(all.and(part?)))
}

/// The controls that the policies of `name`, `a+b`, set.
///
/// # Errors
/// Unknown names, and two policies with a common control.
pub fn owned(name: &str) -> Result<Vec<Control>, PolicyError> {
    Ok(parts(name)?.iter().flat_map(|(entry, _)| entry.owns).copied().collect())
}

/// The controls that one part of a name asks for with what is stated of it.
///
/// # Errors
/// Unknown names and parameters.
pub fn asked(part: &str) -> Result<Vec<Control>, PolicyError> {
    let of = |(entry, stated): (&Entry, Stated)| {
        let is = |control: &Control| match (entry.name, control) {
            ("constant", Control::Frequency) => stated.get("ghz").is_some(),
            ("constant", Control::ActiveCores) => stated.get("cores").is_some(),
            _ => true,
        };
        entry.owns.iter().copied().filter(is).collect::<Vec<_>>()
    };
    Ok(parts(part)?.into_iter().flat_map(of).collect())
}

/// Makes the policy `name`; `a+b` runs a and b together, in that order, `a(x=1, y=2)` is a with
/// two of its parameters stated.
///
/// # Errors
/// Unknown names of policies and parameters, two policies with a common control, impossible
/// budgets and parameters out of range.
pub fn make(
    name: &str,
    topology: &Topology,
    settings: &Settings,
) -> Result<Box<dyn Policy>, PolicyError> {
    let made =
        parts(name)?.into_iter().map(|(entry, stated)| (entry.make)(topology, settings, &stated));
    Ok(Box::new(Registered { parts: made.collect::<Result<_, _>>()?, owns: owned(name)? }))
}

/// The policies of `name`, that own different controls, with what is stated of each.
fn parts(name: &str) -> Result<Vec<(&'static Entry, Stated)>, PolicyError> {
    let part = |part| {
        let (name, stated) = stated::split(part);
        let entry = entry(name)?;
        let stated = stated.map(|text| Stated::parse(entry.name, entry.takes, text));
        Ok((entry, stated.transpose()?.unwrap_or_default()))
    };
    let parts = name.split('+').map(part).collect::<Result<Vec<_>, _>>()?;
    for (place, (second, _)) in parts.iter().enumerate() {
        for (first, _) in &parts[..place] {
            let common = first.owns.iter().find(|owned| second.owns.contains(owned));
            if let Some(control) = common.copied() {
                let (first, second) = (first.name, second.name);
                return Err(PolicyError::Common { first, second, control });
            }
        }
    }
    Ok(parts)
}

fn entry(name: &str) -> Result<&'static Entry, PolicyError> {
    ENTRIES.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let valid = ENTRIES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
        PolicyError::Unknown { name: name.to_owned(), valid }
    })
}

/// A policy, or several that own different controls, with what they own.
struct Registered {
    parts: Vec<Box<dyn Policy>>,
    owns: Vec<Control>,
}

impl Policy for Registered {
    fn name(&self) -> &'static str {
        match &self.parts[..] {
            [only] => only.name(),
            _ => "together",
        }
    }
    fn owns(&self) -> &[Control] {
        &self.owns
    }
    fn step(&mut self, signals: &Signals, request: &mut Request) {
        for policy in &mut self.parts {
            policy.step(signals, request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{DriveSpec, PowerStateSpec};
    use crate::units::Nanos;

    #[test]
    fn who_has_nothing_to_set_says_why() {
        let bare = Topology::default();
        let settings = Settings::default();
        let idle = |name: &str, settings: &Settings| idle(name, &bare, settings).unwrap();
        assert_eq!(idle("native+pacer", &settings), []);
        let [(first, drives), (second, fans)] = idle("pacer+pacman+eadc", &settings)[..] else {
            panic!()
        };
        assert_eq!((first, second), ("pacman", "eadc"));
        assert!(drives.contains("power state") && fans.contains("no fans"));
        assert_eq!(idle("fixed-fans", &settings)[0].1, "this server has no fans that it could set");
        let state = |watts| PowerStateSpec {
            max_power: Watts(watts),
            operational: true,
            entry: Nanos::ZERO,
            exit: Nanos::ZERO,
        };
        let drives =
            vec![DriveSpec { states: vec![state(25.0), state(9.0)], ..DriveSpec::default() }];
        let topology = Topology { drives, ..Topology::default() };
        let of = |settings: &Settings| super::idle("pacman", &topology, settings).unwrap();
        assert!(of(&settings)[0].1.contains("without a budget"));
        assert_eq!(of(&Settings { ssd_budget: Some(Watts(40.0)), ..settings.clone() }), []);
        let capping = super::idle("pass", &topology, &settings).unwrap();
        assert!(capping[0].1.contains("whole server"));
    }

    #[test]
    fn who_caps_is_told_from_who_steers() {
        let of = |name| split(name).map(|(policies, caps)| (policies, caps.unwrap_or_default()));
        let both = |policies: &str, caps: &str| Ok((policies.to_owned(), caps.to_owned()));
        assert_eq!(of("pacer(alpha=0.3)+pass"), both("pacer(alpha=0.3)", "pass"));
        assert_eq!(of("thunderbolt"), both("native", "thunderbolt"));
        assert_eq!(of("pacer+eadc"), both("pacer+eadc", ""));
        assert!(of("pacer+nobody").is_err());
    }

    #[test]
    fn parameters_are_stated_after_the_name() {
        let (topology, settings) = (Topology::default(), Settings::default());
        let made = |name| make(name, &topology, &settings).map(|policy| policy.name());
        assert_eq!(made("pacman(alpha=0.6, beta = 0.4)"), Ok("pacman"));
        assert_eq!(made("pacer( gamma=2 ) + pacman(beta=0)"), Ok("together"));
        for (name, says) in [
            ("pacman(gamma=1)", "'gamma=1' is no parameter of pacman; it takes alpha, beta"),
            ("pacman(alpha=1, alpha=2)", "'alpha=2'"),
            ("pacman(alpha=inf)", "'alpha=inf'"),
            ("pacman()", "''"),
            ("native(x=1)", "it takes nothing"),
            ("pacman(alpha=1", "unknown policy 'pacman(alpha=1'"),
            ("pacman(alpha=-1)", "alpha = -1 is out of range"),
            ("fixed-fans(duty=1.2)", "duty = 1.2 is out of range"),
            ("eadc(fan_gain=0)", "fan_gain = 0 is out of range"),
            ("eadc(alpha=1)", "it takes cap_gain, cap_reset"),
            ("eadc-plus(set_point=90)", "set_point = 90 is out of range"),
            ("pacer(stable_thresh=5)", "unstable_thresh = 0.25 is out of range"),
        ] {
            let error = made(name).err().map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|error| error.contains(says)), "{name}: {error:?}");
        }
        assert_eq!(names("pacer(gamma=2)+eadc").collect::<Vec<_>>(), ["pacer", "eadc"]);
    }

    #[test]
    fn policies_with_a_common_control_are_refused_by_name() {
        let (topology, settings) = (Topology::default(), Settings::default());
        for (name, says) in [
            ("eadc+jetc", "'eadc' and 'jetc' cannot run together: both set fans"),
            ("pacer+ondemand", "both set core frequency"),
            ("pacman+sspc", "both set drive power states"),
            ("pacer+pacman+dlb+dtm", "'dlb' and 'dtm'"),
            ("eadc+eadc", "'eadc' and 'eadc'"),
        ] {
            let error = make(name, &topology, &settings).err().map(|e| e.to_string());
            assert!(error.as_ref().is_some_and(|e| e.contains(says)), "{name}: {error:?}");
        }
        for name in ["native+eadc", "pacer+pacman+eadc", "ondemand + sspc + jetc"] {
            assert!(make(name, &topology, &settings).is_ok(), "{name}");
        }
    }
}
