//! What to try where a run shows little.

use ebb_policy::units::Nanos;
use ebb_record::text::number;
use ebb_record::verdict::{Side, Verdict, percent};

use ebb_cli::text::{seconds, short};

/// Cores busy for less of the time are hardly loaded.
const HARDLY: f64 = 0.01;

/// A server that needs this many times as long as its load lasts has fallen behind.
const BEHIND: f64 = 1.25;

/// What to try where the requests hardly load the server, so that there is little to compare.
pub fn advice(sides: &[Side<'_>], verdicts: &[Verdict], is_trace: bool) -> Option<String> {
    let first = sides.first()?;
    let busy = first.busy?;
    let nothing = verdicts.iter().all(Verdict::is_nothing);
    // A verdict says what a run lacks that was too short to show anything.
    let short = nothing && verdicts.iter().any(|verdict| verdict.unsettled.is_some());
    if verdicts.is_empty() || short || (busy >= HARDLY && !nothing) {
        return None;
    }
    let iops = number(first.iops);
    let load = format!("{iops} IOPS keep this server's cores busy {} of the time", percent(busy));
    let faster = match is_trace {
        true => "--rate-scale 10 --loop plays the trace ten times as fast, again and again",
        false => "--pressure 30% raises the load",
    };
    Some(match nothing {
        true => format!("{load} and give these policies nothing to do; {faster}"),
        false => {
            format!("{load}: this compares little more than the power of an idle server. {faster}")
        }
    })
}

/// What to say of a load that is more than the server serves: what came until `asked` took it
/// until `ended`. Where the load has `threads`, requests wait for these, and not for the server.
pub fn behind(policy: &str, threads: bool, (asked, ended): (Nanos, Nanos)) -> Option<String> {
    let times = ended.seconds() / asked.seconds();
    let (took, times) = (seconds(ended.seconds()), (times >= BEHIND).then(|| short(times))?);
    Some(match threads {
        true => format!(
            "under {policy} the job's threads are the limit: with all of them waiting for answers \
             the requests of {asked} took {took}, {times} times as long. Latencies grow as long \
             as that lasts; more --jobs send more, and --pressure 80% is a load that these can \
             send"
        ),
        false => format!(
            "under {policy} the server fell behind: it served the requests of {asked} in {took}, \
             so the load is {times} times its capacity. Latencies grow as long as that lasts; \
             --pressure 80% is a load that it can serve"
        ),
    })
}

#[cfg(test)]
mod tests {
    use ebb_record::verdict::all;

    use super::*;

    const NATIVE: Side<'_> = Side {
        policy: "native",
        watts: 400.0,
        iops: 1000.0,
        latency_us: Some((100.0, 200.0)),
        busy: Some(0.3),
        sla_kept: Some(true),
        above: Some(0.0),
        whole: true,
        unsettled: None,
        difference: None,
        parts: &[],
    };

    #[test]
    fn what_shows_nothing_says_what_to_try() {
        let sides = [NATIVE, Side { policy: "x", ..NATIVE }];
        let text = advice(&sides, &all(&sides, 0.2), true).unwrap();
        assert!(text.contains("busy 30.0% of the time") && text.contains("--rate-scale"), "{text}");
        let idle = [Side { busy: Some(0.001), ..NATIVE }, Side { watts: 300.0, ..NATIVE }];
        let text = advice(&idle, &all(&idle, 0.2), false).unwrap();
        assert!(text.contains("an idle server") && text.contains("--pressure"), "{text}");
        assert_eq!(advice(&idle[..1], &[], false), None);
    }

    #[test]
    fn a_load_that_is_too_much_is_told() {
        let (asked, drained) = (Nanos::from_secs(5), Nanos::from_millis(5_200));
        assert_eq!(behind("native", false, (asked, drained)), None);
        let told = |closed| behind("native", closed, (asked, Nanos::from_secs(62))).unwrap();
        let [server, threads] = [false, true].map(told);
        assert!(server.contains("server fell behind") && server.contains("12.4 times"), "{server}");
        assert!(threads.contains("threads are the limit") && threads.contains("12.4 times"));
    }
}
