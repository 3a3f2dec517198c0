//! What counts as disk activity, in a whole server: while anybody waits for a disk the fans stay
//! under EADC's cap, whatever went before, and when nobody does the cap is gone.

use crate::common::{KNEE, curve, heaters, job};
use ebb_policy::registry::{Settings, make};
use ebb_policy::units::Nanos;
use ebb_trace::{Closed, Op, Request, Workload};
use ebb_twin::{Observer, Profile, Run, Sample, run};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const DISKS: u16 = 8;
/// A stream on every disk until here, then random reads on one of them, then nothing.
const STREAM: Nanos = Nanos::from_secs(300);
const RANDOM: Nanos = Nanos::from_secs(900);
const END: Nanos = Nanos::from_secs(1500);

/// One reader for each disk.
struct Readers {
    sent: [u64; DISKS as usize],
    random: Pcg64Mcg,
}

impl Closed for Readers {
    fn slots(&self) -> u32 {
        DISKS.into()
    }
    fn next(&mut self, slot: u32, now: Nanos) -> Option<Request> {
        let sent = &mut self.sent[slot as usize];
        *sent += 1;
        let (at, offset, bytes) = if now < STREAM {
            (now, *sent << 20, 1 << 20)
        } else if slot > 0 || now >= RANDOM {
            (END, 0, 4096)
        } else {
            (now, self.random.random_range(0..1_u64 << 28) * 4096, 4096)
        };
        let (op, recorded_latency) = (Op::Read, None);
        Some(Request { at, offset, bytes, device: slot as u16, op, stream: slot, recorded_latency })
    }
}

/// Time, duty and requests of each period.
#[derive(Default)]
struct Watch(Vec<(Nanos, f64, u64)>);

impl Observer for Watch {
    fn sample(&mut self, sample: &Sample<'_>) {
        let signals = sample.cycled.signals;
        let duty = signals.cooling.fans[0].duty.unwrap();
        self.0.push((signals.now, duty, signals.io.completed.unwrap()));
    }
}

#[test]
fn random_reads_on_one_disk_keep_the_cap_and_idle_disks_lift_it() {
    let profile = Profile::load("eadc-e6").unwrap();
    assert_eq!(profile.volumes().0, DISKS);
    // `eadc-plus` has no cap: it weighs what air costs the disks against everything else.
    let name = "eadc";
    let settings = Settings { curve: Some(curve()), ..Settings::default() };
    let policy = make(name, &profile.topology(), &settings).unwrap();
    let readers = Readers { sent: [0; DISKS as usize], random: Pcg64Mcg::seed_from_u64(1) };
    let workload = Workload::Closed(Box::new(readers));
    let mut watch = Watch::default();
    // Heat that wants more air than the knee allows.
    let jobs = heaters(16);
    let job = Run { jobs, ..job(&profile, policy, workload, Some(END)) };
    run(job, &mut watch).unwrap();
    let between =
        |from: Nanos, to: Nanos| watch.0.iter().filter(move |(now, ..)| *now > from && *now <= to);
    let most = |from, to| between(from, to).map(|(_, duty, _)| *duty).fold(0.0, f64::max);
    let requests: u64 = between(STREAM, RANDOM).map(|(.., requests)| requests).sum();
    println!(
        "{name}: duty {} and {} with {requests} reads, {} idle",
        most(Nanos::from_secs(60), STREAM),
        most(STREAM, RANDOM),
        most(RANDOM, END)
    );
    assert!(requests > 600 * 50, "{requests} reads");
    assert!(most(Nanos::from_secs(60), RANDOM) <= KNEE);
    assert!(most(RANDOM, END) > KNEE + 0.05, "nobody waits for a disk");
}
