//! What to try where a run shows little.

use ebb_record::text::number;
use ebb_record::verdict::{Side, Verdict, percent};

/// Cores busy for less of the time are hardly loaded.
const HARDLY: f64 = 0.01;

/// What to try where the requests hardly load the server, so that there is little to compare.
pub fn advice(sides: &[Side<'_>], verdicts: &[Verdict], is_trace: bool) -> Option<String> {
    let first = sides.first()?;
    let busy = first.busy?;
    let nothing = verdicts.iter().all(Verdict::is_nothing);
    if verdicts.is_empty() || (busy >= HARDLY && !nothing) {
        return None;
    }
    let iops = number(first.iops);
    let load = format!("{iops} IOPS keep this server's cores busy {} of the time", percent(busy));
    let faster = match is_trace {
        true => "--rate-scale 10 plays the trace ten times as fast",
        false => "--pressure 30% asks for more of what it can do",
    };
    Some(match nothing {
        true => format!(
            "{load} and give these policies nothing to do. --policy native --policy pacer shows \
             what parking cores saves at low load; {faster}"
        ),
        false => {
            format!("{load}: what is compared is nearly the power of an idle server. {faster}")
        }
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
        whole: true,
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
}
