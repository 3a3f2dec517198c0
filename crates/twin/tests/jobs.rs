//! Jobs and hard disks in a whole server: conserved work, shares, sockets, classes, vibration.

use crate::common::job as run_of;
use ebb_policy::units::{Hertz, Nanos};
use ebb_policy::{Policy, QosClass, Request, Signals};
use ebb_trace::Workload;
use ebb_trace::generate::{BuildContext, Job, JobIo, by_name};
use ebb_twin::hdd::Wear;
use ebb_twin::{Observer, Outcome, Profile, Run, Sample, TwinError, Unobserved, run};
use proptest::prelude::*;

struct Nothing;
impl ebb_trace::Source for Nothing {
    fn fill(&mut self, _: &mut Vec<ebb_trace::Request>) -> Result<(), ebb_trace::TraceError> {
        Ok(())
    }
}

/// Sets request from the start, whatever it sees.
struct Set<F>(F);
impl<F: FnMut(&mut Request) + Send> Policy for Set<F> {
    fn name(&self) -> &'static str {
        "set"
    }
    fn step(&mut self, _: &Signals, request: &mut Request) {
        (self.0)(request);
    }
}

/// On the first socket.
fn compute(seconds: u64) -> Job {
    Job { socket: Some(0), ..crate::common::compute(seconds) }
}

/// Reads so many requests of 256 KiB from the first disk, one by one.
fn reader(requests: u64) -> Job {
    let io = JobIo {
        requests,
        writes: 0,
        bytes: 256 << 10,
        random: 0.0,
        depth: 1,
        first: 0,
        count: 1,
        base: 0,
        span: 1 << 40,
        rebuild: false,
    };
    Job { name: "reader".to_owned(), class: QosClass::Critical, io: Some(io), ..compute(1) }
}

fn try_with(
    server: &str,
    jobs: Vec<Job>,
    set: impl FnMut(&mut Request) + Send + 'static,
    duration: Option<Nanos>,
    observer: &mut dyn Observer,
) -> Result<Outcome, TwinError> {
    let profile = Profile::load(server).unwrap();
    let workload = Workload::Open(Box::new(Nothing));
    let run_of = run_of(&profile, Box::new(Set(set)), workload, duration);
    run(Run { jobs, ..run_of }, observer)
}

fn with(jobs: Vec<Job>, set: impl FnMut(&mut Request) + Send + 'static) -> Outcome {
    try_with("eadc-e6", jobs, set, None, &mut Unobserved).unwrap()
}

/// Seconds from arrival to end of each job.
fn delays(outcome: &Outcome) -> Vec<f64> {
    outcome.jobs.iter().map(|job| job.delay().unwrap().seconds()).collect()
}

#[test]
fn jobs_beside_each_other_take_their_time_and_jobs_on_one_core_share_it() {
    let alone = delays(&with(vec![compute(3); 15], |_| ()));
    // Seven cores on socket 0, eight on socket 1: the scheduler finds them.
    assert!(alone.iter().all(|delay| (delay - 3.0).abs() < 0.05), "{alone:?}");
    let crowded = with(vec![compute(1); 16], |_| ());
    let work: f64 = crowded.jobs.iter().map(|job| job.cpu.seconds()).sum();
    assert!((work - 16.0).abs() < 0.05, "{work}");
    let delays = delays(&crowded);
    assert_eq!(delays.iter().filter(|delay| **delay > 1.9).count(), 0, "{delays:?}");
}

#[test]
fn a_share_stretches_a_job_and_tells_the_time_lost() {
    let outcome = with(vec![compute(2), compute(2)], |request| {
        request.job_share.ask(1, 0.25, "test:share");
    });
    let [full, quarter] = delays(&outcome)[..] else { panic!() };
    assert!((full - 2.0).abs() < 0.02 && (quarter - 8.0).abs() < 0.1, "{full} {quarter}");
    let lost = outcome.jobs[1].throttled.seconds();
    assert!((lost - 6.0).abs() < 0.1, "{lost}");
    assert_eq!(outcome.jobs[0].throttled, Nanos::ZERO);
}

#[test]
fn frequency_in_force_slows_jobs_and_saves_power() {
    let at = |frequency: f64| {
        with(vec![compute(2); 4], move |request| {
            for group in 0..request.frequency.len() {
                request.frequency.ask(group, Hertz(frequency), "test:frequency");
            }
        })
    };
    let (fast, slow) = (at(2.7e9), at(1.8e9));
    let ratio = delays(&slow)[0] / delays(&fast)[0];
    assert!((ratio - 1.5).abs() < 0.02, "{ratio}");
    let power = |outcome: &Outcome| (outcome.energy.cpu / outcome.span).0;
    assert!(power(&slow) < power(&fast) - 10.0);
    assert!(slow.jobs[0].throttled > Nanos::from_millis(900));
}

#[test]
fn classes_wait_until_they_are_admitted() {
    let late = Nanos::from_secs(3);
    let mut periods = 0;
    let critical = Job { class: QosClass::Critical, ..compute(1) };
    let outcome = with(vec![compute(1), critical], move |request| {
        periods += 1;
        request.ask_admit(QosClass::Noncritical, periods > 6, "test:admission");
    });
    assert_eq!(outcome.jobs[1].started, Some(Nanos::ZERO));
    let started = outcome.jobs[0].started.unwrap();
    assert!(started >= late && started < late + Nanos::from_secs(1), "{started}");
}

/// Runs `jobs` on a server with room for so many at once, noncritical ones admitted or not.
fn in_slots(slots: u16, jobs: Vec<Job>, admitted: bool, observer: &mut dyn Observer) -> Outcome {
    let mut profile = Profile::load("eadc-e6").unwrap();
    profile.jobs.as_mut().unwrap().slots = slots;
    let set = Set(move |request: &mut Request| {
        request.ask_admit(QosClass::Noncritical, admitted, "test:admission");
    });
    let workload = Workload::Open(Box::new(Nothing));
    let end = Some(Nanos::from_secs(8));
    run(Run { jobs, ..run_of(&profile, Box::new(set), workload, end) }, observer).unwrap()
}

/// Which classes were seen in slots, whatever the slot.
#[derive(Default)]
struct Classes(Vec<QosClass>);
impl Observer for Classes {
    fn sample(&mut self, sample: &Sample<'_>) {
        let jobs = sample.cycled.signals.jobs.iter();
        self.0.extend(jobs.filter(|job| job.present).map(|job| job.class));
    }
}

#[test]
fn jobs_that_are_refused_hold_no_slot_against_one_that_is_admitted() {
    let start = Nanos::from_secs(2);
    let critical = Job { class: QosClass::Critical, start, ..compute(1) };
    for slots in [1, 2] {
        let jobs = vec![compute(1), compute(1), compute(1), critical.clone()];
        let mut seen = Classes::default();
        let outcome = in_slots(slots, jobs, false, &mut seen);
        assert_eq!(outcome.jobs[3].started, Some(start), "{slots} slots");
        assert!(outcome.jobs[3].ended.is_some(), "{slots} slots");
        assert!(outcome.jobs[..3].iter().all(|job| job.started.is_none()), "{slots} slots");
        assert!(seen.0.contains(&QosClass::Critical), "{slots} slots");
        // Before and after it a refused one is seen waiting.
        assert_eq!(seen.0.last(), Some(&QosClass::Noncritical), "{slots} slots");
    }
}

#[test]
fn slots_go_by_class_then_by_age_and_running_jobs_keep_theirs() {
    use QosClass::{Critical, Noncritical, Vital};
    let at = |class, tenths: u64| {
        let start = Nanos::from_millis(100 * tenths);
        Job { class, start, ..compute(1) }
    };
    let jobs = vec![
        at(Noncritical, 0),
        at(Noncritical, 3),
        at(Noncritical, 2),
        at(Vital, 4),
        at(Critical, 5),
    ];
    let outcome = in_slots(1, jobs, true, &mut Unobserved);
    let mut order: Vec<usize> = (0..5).collect();
    order.sort_by_key(|job| outcome.jobs[*job].started.unwrap());
    assert_eq!(order, [0, 4, 3, 2, 1]);
    let ends: Vec<_> = order.iter().map(|job| outcome.jobs[*job].ended.unwrap()).collect();
    assert!(ends.is_sorted(), "{ends:?}");
}

/// Follows the signals of the first two slots.
#[derive(Default)]
struct Watch {
    sockets: Vec<u16>,
    cpu: Vec<f64>,
    bytes: u64,
}
impl Observer for Watch {
    fn sample(&mut self, sample: &Sample<'_>) {
        let jobs = &sample.cycled.signals.jobs;
        self.sockets.push(jobs[0].socket);
        self.cpu.push(jobs[0].cpu);
        self.bytes += jobs[1].disk_bytes;
    }
}

#[test]
fn jobs_move_to_the_socket_asked_for_and_signals_tell() {
    let mut watch = Watch::default();
    let mut periods = 0;
    let set = move |request: &mut Request| {
        periods += 1;
        if periods == 4 {
            request.job_socket.ask(0, 1, "test:move");
        }
    };
    // Of one class, so that they take slots in this order.
    let jobs = vec![Job { class: QosClass::Critical, ..compute(4) }, reader(800)];
    let outcome = try_with("eadc-e6", jobs, set, None, &mut watch).unwrap();
    assert_eq!(watch.sockets[..3], [0, 0, 0]);
    assert_eq!(watch.sockets[5], 1);
    assert!(watch.cpu[..7].iter().all(|cpu| *cpu > 0.98), "{:?}", watch.cpu);
    let read = outcome.jobs[1].disk_bytes;
    assert_eq!(read, 800 * 256 * 1024);
    assert!(watch.bytes <= read && watch.bytes > read * 9 / 10);
}

#[test]
fn a_reader_waits_for_its_disk_and_computes_between() {
    let outcome = with(vec![reader(1000)], |_| ());
    let job = &outcome.jobs[0];
    assert_eq!(outcome.requests, 1000, "its requests are the server's");
    assert!((job.cpu.seconds() - 1.0).abs() < 0.01);
    let delay = job.delay().unwrap().seconds();
    let parts = job.cpu.seconds() + job.disk_wait.seconds();
    assert!((delay - parts).abs() < 0.02, "{delay} s of {parts} s");
    // 262 MB at 175 MB/s, read ahead while it computes.
    assert!((1.4..2.2).contains(&delay), "{delay}");
}

#[test]
fn a_run_that_ends_before_its_jobs_says_so() {
    let end = Some(Nanos::from_secs(5));
    let mut late = compute(100);
    late.objective = Some(Nanos::from_secs(3));
    let jobs = vec![late, compute(1)];
    let outcome = try_with("eadc-e6", jobs, |_| (), end, &mut Unobserved).unwrap();
    assert_eq!(outcome.span, Nanos::from_secs(5));
    assert_eq!((outcome.jobs[0].ended, outcome.jobs[0].met(outcome.end)), (None, Some(false)));
    assert!(outcome.jobs[1].ended.is_some() && outcome.jobs[1].met(outcome.end).is_none());
}

#[test]
fn wear_is_counted_after_warm_up_and_promises_to_the_end_of_the_run() {
    struct Watch(Vec<(Nanos, Wear)>);
    impl Observer for Watch {
        fn sample(&mut self, sample: &Sample<'_>) {
            self.0.push((sample.cycled.signals.now, sample.wear));
        }
    }
    let profile = Profile::load("eadc-e6").unwrap();
    let mut late = compute(100);
    late.objective = Some(Nanos::from_millis(4500));
    let workload = Workload::Open(Box::new(Nothing));
    let end = Nanos::from_secs(5);
    let run_of = run_of(&profile, Box::new(Set(|_: &mut Request| ())), workload, Some(end));
    let (jobs, warmup) = (vec![late, reader(1 << 20)], Nanos::from_secs(3));
    let mut watch = Watch(Vec::new());
    let outcome = run(Run { jobs, warmup, ..run_of }, &mut watch).unwrap();
    let warm = watch.0.iter().find(|(now, _)| *now == warmup).unwrap().1;
    let all = watch.0.last().unwrap().1;
    assert!(warm.busy > Nanos::from_secs(1), "{warm:?}");
    assert_eq!(outcome.wear(), all.since(&warm));
    assert!(outcome.wear().busy <= outcome.span, "one disk works no longer than there is time");
    assert!(outcome.end >= end, "the last read is waited for");
    assert_eq!(outcome.end - outcome.span, warmup);
    assert_eq!(outcome.jobs[0].met(outcome.end), Some(false), "broken in the last half second");
}

#[test]
fn servers_that_cannot_run_a_job_say_why() {
    let refuse =
        |server: &str, job: Job| match try_with(server, vec![job], |_| (), None, &mut Unobserved) {
            Err(TwinError::Setup(reason)) => reason,
            other => panic!("{other:?}"),
        };
    assert!(refuse("pass-10", compute(1)).contains("no cores for them"));
    let elsewhere = Job { socket: Some(7), ..compute(1) };
    assert!(refuse("eadc-e6", elsewhere).contains("socket 7"));
    let mut rebuild = reader(1);
    rebuild.io.as_mut().unwrap().rebuild = true;
    assert!(refuse("eadc-e6", rebuild).contains("no RAID"));
}

#[test]
fn a_rebuilding_reads_from_the_others_and_writes_to_the_failed_drive() {
    let mut rebuild = reader(50);
    let io = rebuild.io.as_mut().unwrap();
    (io.rebuild, io.depth) = (true, 4);
    let end = Some(Nanos::from_secs(60));
    let outcome = try_with("backup-36", vec![rebuild], |_| (), end, &mut Unobserved).unwrap();
    let job = &outcome.jobs[0];
    assert!(job.ended.is_some());
    // 34 of 36 drives are needed for each place, and one is written.
    assert_eq!(job.disk_bytes, 50 * 35 * 256 * 1024);
    assert_eq!(outcome.requests, 0, "no user asked for it");
}

#[test]
fn the_studys_workloads_run_on_its_servers() {
    for (workload, server, jobs) in
        [("eadc-iv-w8", "eadc-e6", 6), ("eadc-vi-w3", "eadc-q", 6), ("eadc-vi-w6", "eadc-e2", 12)]
    {
        let (devices, capacity) = Profile::load(server).unwrap().volumes();
        let context = BuildContext { devices, capacity_bytes: capacity.0, seed: 1 };
        let made = by_name(workload).unwrap().batch_jobs(&context).unwrap();
        assert_eq!(made.len(), jobs, "{workload}");
        let end = Some(Nanos::from_secs(3));
        let outcome = try_with(server, made, |_| (), end, &mut Unobserved).unwrap();
        let query = outcome.jobs.iter().find(|job| job.name.starts_with("tpch")).unwrap();
        assert!(query.disk_bytes > 100_000_000, "{workload}: {}", query.disk_bytes);
        let busy: f64 = outcome.jobs.iter().map(|job| job.cpu.seconds()).sum();
        assert!(busy > 3.0 * (jobs as f64 - 1.0), "{workload}: {busy} s");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Work, core time and energy are conserved whatever shares and sockets do, and the same run
    /// gives the same result.
    #[test]
    fn work_and_core_time_are_conserved(
        lengths in prop::collection::vec((1u64..4, any::<bool>()), 1..20),
        shares in prop::collection::vec(0.2..=1.0f64, 16),
        sockets in prop::collection::vec(prop::option::of(0u16..2), 16),
        active in 1u16..8,
    ) {
        let jobs: Vec<Job> = lengths
            .iter()
            .map(|(length, reads)| if *reads { reader(length * 100) } else { compute(*length) })
            .collect();
        let go = || {
            let (shares, sockets) = (shares.clone(), sockets.clone());
            with(jobs.clone(), move |request| {
                for slot in 0..16 {
                    request.job_share.ask(slot, shares[slot], "test:share");
                    if let Some(socket) = sockets[slot] {
                        request.job_socket.ask(slot, socket, "test:socket");
                    }
                }
                request.active_cores.ask(1, active, "test:active");
            })
        };
        let outcome = go();
        for (job, (length, reads)) in outcome.jobs.iter().zip(&lengths) {
            let expected = if *reads { 1.0 } else { *length as f64 };
            // A move to another socket costs 1 ms.
            prop_assert!((job.cpu.seconds() - expected).abs() < 0.05, "{job:?}");
            prop_assert!(job.ended.is_some());
        }
        let time = outcome.cores;
        let all = time.busy + time.polling + time.idle + time.parked;
        prop_assert_eq!(all.0, 16 * outcome.span.0);
        let busy: f64 = outcome.jobs.iter().map(|job| job.cpu.seconds()).sum();
        prop_assert!(time.busy.seconds() >= busy - 1e-6);
        let again = go();
        prop_assert_eq!(outcome.energy, again.energy);
        prop_assert_eq!(outcome.jobs, again.jobs);
    }
}
