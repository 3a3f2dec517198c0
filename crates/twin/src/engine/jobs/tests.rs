//! One job by itself: what it computes, waits and asks for.

use ebb_policy::QosClass;
use ebb_policy::units::Hertz;
use ebb_trace::Op;
use ebb_trace::generate::JobIo;
use proptest::prelude::*;

use super::*;

const FULL: Pace = Pace { frequency: Hertz(2e9), highest: Hertz(2e9) };

fn spec(cpu: Nanos, io: Option<JobIo>) -> Spec {
    Spec {
        name: "job".to_owned(),
        class: QosClass::Vital,
        socket: None,
        start: Nanos::ZERO,
        cpu,
        clock: Hertz(2e9),
        fixed: 0.25,
        activity: 1.0,
        io,
        objective: None,
    }
}

fn io(requests: u64, writes: u64, depth: u32) -> JobIo {
    let (bytes, span) = (4096, 1 << 20);
    let (first, count) = (2, 3);
    JobIo {
        requests,
        writes,
        bytes,
        random: 0.3,
        depth,
        first,
        count,
        base: 512,
        span,
        rebuild: false,
    }
}

#[test]
fn half_the_clock_takes_what_does_not_wait_for_memory_twice_as_long() {
    let mut job = Job::new(spec(Nanos::from_secs(1), None));
    job.start(0);
    assert_eq!(job.burst_end(0, FULL), 1_000_000_000);
    let half = Pace { frequency: Hertz(1e9), ..FULL };
    // EADC Eq. 2: three quarters double, the last quarter does not.
    assert_eq!(job.burst_end(0, half), 1_750_000_000);
    job.running = Some(0);
    job.progress(1_750_000_000, half);
    assert!(job.is_burst_over());
    let lost = job.total.throttled;
    assert!((lost.seconds() - 0.75).abs() < 1e-6, "{lost}");
}

#[test]
fn shares_are_kept_over_some_slices() {
    for share in [0.0, 0.1, 0.25, 0.3, 0.5, 0.77, 1.0] {
        let mut job = Job::new(spec(Nanos::from_secs(1000), None));
        job.start(0);
        let mut ran = 0;
        for slice in 0..1000 {
            job.share(share, slice * SLICE);
            ran += i32::from(job.allowed);
        }
        assert!((f64::from(ran) - 1000.0 * share).abs() <= 1.0, "{share}: {ran} slices");
        let held = job.total.throttled.seconds();
        assert!((held - 10.0 * (1.0 - share)).abs() <= 0.02, "{share}: {held} s");
    }
}

proptest! {
    /// A job sends what it was asked to, stays within its depth and its region, and ends when
    /// the last answer is worked on.
    #[test]
    fn a_job_sends_everything_once_within_its_window(
        requests in 1u64..200,
        writes in 0.0..=1.0f64,
        depth in 1u32..20,
    ) {
        let writes = (writes * requests as f64) as u64;
        let spec = spec(Nanos::from_millis(200), Some(io(requests, writes, depth)));
        let mut job = Job::new(spec);
        job.start(0);
        let (mut now, mut flying, mut sent, mut written) = (0, 0u64, 0, 0);
        while job.state != State::Ended {
            while job.may_send() > 0 {
                let request = job.next_request(now, 1).unwrap();
                prop_assert!((2..5).contains(&request.device));
                prop_assert!(request.offset >= 512 && request.offset + 4096 <= 512 + (1 << 20));
                written += u64::from(request.op == Op::Write);
                sent += 1;
                flying += 1;
                prop_assert!(flying <= u64::from(depth));
            }
            now += 1000;
            if job.state == State::Ready {
                job.running = Some(now);
                now = job.burst_end(now, FULL);
                job.progress(now, FULL);
                job.running = None;
                prop_assert!(job.is_burst_over());
                job.burst_done(now);
            } else {
                prop_assert!(flying > 0, "waits for nothing");
                flying -= 1;
                job.answer(now, 4096);
            }
        }
        prop_assert_eq!((sent, written), (requests, writes));
        let cpu = job.total.cpu.0 as f64;
        prop_assert!((cpu - 2e8).abs() <= requests as f64 + 1.0, "{cpu}");
        prop_assert!(job.total.disk_wait.0 <= now - job.total.cpu.0);
    }
}
