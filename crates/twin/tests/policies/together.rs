//! PACER and PACMAN on one server: each keeps its promise and leaves the other's controls alone.

use ebb_policy::registry::{Settings, make};
use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{Control, Cycled, Decision};
use ebb_trace::Workload;
use ebb_twin::{Observer, Outcome, Profile, Run, Sample, run};

use crate::common::{Poisson, job};

/// Of 24 drives that can be capped to 9 W.
const BUDGET: Watts = Watts(300.0);
const PLF: f64 = 0.2;
/// A window of 30 s against PACER's own of 5 s.
const LATENCY_NOISE: f64 = 0.03;

/// Who decided what.
#[derive(Default)]
struct Owners {
    cores: usize,
    drives: usize,
    foreign: Vec<Decision>,
}

impl Owners {
    fn decided(&mut self, decision: Decision) {
        let drive = decision.control == Control::PowerState;
        let owner = decision.reason.split(':').next().unwrap();
        match (drive, owner) {
            (true, "sspc" | "pacman") => self.drives += 1,
            (false, "pacer") => self.cores += 1,
            // The guard bounds how fast cores are parked.
            (false, "guard") => {}
            _ => self.foreign.push(decision),
        }
    }
}

impl Observer for Owners {
    fn opened(&mut self, cycled: &Cycled<'_>) {
        cycled.decisions().for_each(|decision| self.decided(decision));
    }
    fn sample(&mut self, sample: &Sample<'_>) {
        self.opened(&sample.cycled);
    }
}

/// A server whose cores poll, so that PACER has something to save, with drives whose caps differ.
fn profile() -> Profile {
    let text = Profile::shipped_text("dorado-6000").unwrap();
    Profile::parse(&text.replace("\"dorado-ssd\"", "\"pm1743\""), "with-pm1743").unwrap()
}

fn served(policy: &str) -> (Outcome, Owners) {
    let profile = profile();
    let settings = Settings { plf: PLF, ssd_budget: Some(BUDGET), ..Settings::default() };
    let policy = make(policy, &profile.topology(), &settings).unwrap();
    // PACER's rand-rw at a pressure of 3 %: 18 k IOPS.
    let source = Poisson::new(u64::MAX, 55_000.0, 8192, 0.7, 1);
    let workload = Workload::Open(Box::new(source));
    let job = Run {
        ssd_budget: Some(BUDGET),
        warmup: Nanos::from_secs(60),
        ..job(&profile, policy, workload, Some(Nanos::from_secs(90)))
    };
    let mut owners = Owners::default();
    (run(job, &mut owners).unwrap(), owners)
}

#[test]
fn pacer_and_pacman_together_keep_plf_and_budget() {
    let (capped, _) = served("pacman");
    for name in ["pacer+pacman", "pacman+pacer"] {
        let (both, owners) = served(name);
        assert_eq!(owners.foreign, [], "{name}");
        assert!(owners.cores > 0 && owners.drives > 0, "{name}");
        assert!(both.most_capped <= BUDGET, "{name}: {}", both.most_capped);
        assert_eq!(both.over_budget, Nanos::ZERO, "{name}");
        // Caps cost latency too, whoever steers the cores: what PACER adds is what it promises.
        let loss = both.mean_latency() / capped.mean_latency() - 1.0;
        println!(
            "{name}: loss {loss:.4}, {:.4} of the CPU energy",
            both.energy.cpu / capped.energy.cpu
        );
        assert!(loss <= PLF + LATENCY_NOISE, "{name}: loss {loss}");
        assert!(both.energy.total() < capped.energy.total() * 0.99, "{name}: nothing saved");
    }
}
