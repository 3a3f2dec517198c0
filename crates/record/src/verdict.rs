//! What a run would save against the reference, in a sentence: the first thing a reader sees.

use schemars::JsonSchema;
use serde::Serialize;

use crate::parts::PartSummary;
use crate::sampled::Difference;
use crate::text::{number, short};

/// Hours of a year.
const YEAR: f64 = 8760.0;
/// Changes up to this are none.
const SAME: f64 = 0.005;
/// Share of the windows of 5 s that may be above the limit.
pub const ABOVE: f64 = 0.05;
/// Runs whose work differs by more are compared by the energy of a request.
const SAME_WORK: f64 = 0.01;

/// What is compared of a run.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The policy.
    pub policy: &'a str,
    /// Mean power at the wall.
    pub watts: f64,
    /// Requests per second.
    pub iops: f64,
    /// Mean latency and its 99th percentile.
    pub latency_us: Option<(f64, f64)>,
    /// Share of the time that cores were busy with requests, 0 to 1; `None` where they compute.
    pub busy: Option<f64>,
    /// Whether the mean latency kept the SLA.
    pub sla_kept: Option<bool>,
    /// Share of the windows of 5 s whose mean latency did not.
    pub above: Option<f64>,
    /// Whether the run went to its end.
    pub whole: bool,
    /// Why its means are not those of a year at this load.
    pub unsettled: Option<&'a str>,
    /// How sure the differences to the first are; `None` where the whole load was simulated.
    pub difference: Option<Difference>,
    /// The parts of a load that has several.
    pub parts: &'a [PartSummary],
}

/// One policy against the first.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Verdict {
    /// The policy.
    pub policy: String,
    /// Mean power of the first policy's run less this one's.
    pub saved_watts: f64,
    /// The same over a year at this load; `None` where the runs do not show it.
    pub saved_kwh_per_year: Option<f64>,
    /// Why they do not; absent where they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<String>,
    /// The same as a share of the first policy's mean power.
    pub saved_share: f64,
    /// Requests per second against the first policy's: 0.1 for a tenth more.
    pub throughput_change: f64,
    /// Energy of a request against the first policy's.
    pub energy_per_request_change: f64,
    /// Mean latency against the first policy's.
    pub latency_mean_change: f64,
    /// 99th percentile of the latency against the first policy's.
    pub latency_p99_change: f64,
    /// How sure they are; absent where the whole load was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Difference>,
    /// Whether the tolerated loss was kept: by the mean latency, and in at least 95 % of the
    /// windows of 5 s.
    pub kept: bool,
    /// All that in a sentence.
    pub text: String,
}

/// A verdict for every run but the first, where both went to their ends and served requests;
/// `plf` is the loss that is tolerated.
#[must_use]
pub fn all(sides: &[Side<'_>], plf: f64) -> Vec<Verdict> {
    let Some((first, others)) = sides.split_first() else { return Vec::new() };
    others.iter().filter_map(|side| Verdict::new(first, side, plf)).collect()
}

impl Verdict {
    fn new(first: &Side<'_>, side: &Side<'_>, plf: f64) -> Option<Self> {
        let comparable = first.whole && side.whole && first.watts > 0.0 && side.iops > 0.0;
        let ((mean, p99), (first_mean, first_p99)) = (side.latency_us?, first.latency_us?);
        if !comparable || first_mean <= 0.0 || first_p99 <= 0.0 {
            return None;
        }
        let saved_watts = first.watts - side.watts;
        let unsettled = side.unsettled.or(first.unsettled);
        let a_year = |watts: f64| watts * YEAR * 1e-3;
        let settled = unsettled.is_none();
        let interval = side.difference.map(|difference| Difference {
            saved_kwh_per_year: settled.then(|| difference.saved_watts.map(a_year)),
            ..difference
        });
        let mut verdict = Self {
            policy: side.policy.to_owned(),
            saved_watts,
            saved_kwh_per_year: settled.then(|| a_year(saved_watts)),
            unsettled: unsettled.map(str::to_owned),
            saved_share: saved_watts / first.watts,
            throughput_change: side.iops / first.iops - 1.0,
            energy_per_request_change: (side.watts / side.iops) / (first.watts / first.iops) - 1.0,
            latency_mean_change: mean / first_mean - 1.0,
            latency_p99_change: p99 / first_p99 - 1.0,
            interval,
            kept: side.sla_kept == Some(true) && side.above.is_none_or(|above| above <= ABOVE),
            text: String::new(),
        };
        verdict.text = verdict.sentence(first, side, plf);
        Some(verdict)
    }

    fn sentence(&self, other: &Side<'_>, side: &Side<'_>, plf: f64) -> String {
        let (name, first) = (&self.policy, other.policy);
        let half = |[low, high]: [f64; 2]| (high - low) / 2.0;
        let sure = self.interval.map(|interval| half(interval.saved_watts));
        let sure = sure.map_or(String::new(), |watts| format!(" ± {}", number(watts)));
        let watts = number(self.saved_watts.abs()) + &sure;
        let share = percent(self.saved_share);
        let energy = self.energy_per_request_change;
        let power = match self.saved_share {
            saved if saved > SAME && self.throughput_change < -SAME_WORK => {
                format!("{name} draws {watts} W less than {first} ({share})")
            }
            saved if saved > SAME => {
                let year = self.saved_kwh_per_year;
                let year = year.map(|kwh| format!(", {} kWh a year at this load", number(kwh)));
                let year = year.unwrap_or_default();
                format!("{name} would save {watts} W of {first}'s power ({share}){year}")
            }
            saved if saved < -SAME => {
                format!("{name} draws {watts} W more than {first} ({share})")
            }
            _ => format!("{name} draws as much as {first}"),
        };
        let work = match (self.throughput_change, energy) {
            (work, _) if work.abs() <= SAME_WORK => String::new(),
            (work, energy) => format!(
                ", and serves {} {} requests: {} {} energy for each",
                percent(work),
                if work > 0.0 { "more" } else { "fewer" },
                percent(energy),
                if energy > 0.0 { "more" } else { "less" }
            ),
        };
        let latency = |name: &str, change: f64| match change {
            change if change.abs() <= SAME => format!("{name} unchanged"),
            change => format!("{name} {:+.1}%", change * 100.0),
        };
        let mean = self.interval.and_then(|interval| interval.latency_mean_change).map(half);
        let mean = mean.map_or(String::new(), |half| format!(" ± {:.1}%", half * 100.0));
        let allowed = format!("the {}% allowed", short(plf * 100.0));
        let change = self.interval.and_then(|interval| interval.latency_mean_change);
        let kept = match side.sla_kept {
            _ if change.is_some_and(|[low, high]| low <= plf && plf < high) => {
                format!("within {allowed} or not: the sample does not tell")
            }
            Some(true) if self.kept => format!("within {allowed}{}", hidden(other, side, plf)),
            Some(true) => {
                let above = percent(side.above.unwrap_or_default());
                format!("within {allowed} on the whole, but above it in {above} of all 5 s")
            }
            _ => format!("which breaks {allowed}"),
        };
        let unsettled = self.unsettled.as_ref();
        let unsettled = unsettled.map(|why| format!(" No figure for a year: {why}."));
        let changes = [self.latency_mean_change, self.latency_p99_change];
        let gain = changes.iter().all(|change| *change <= SAME)
            && changes.iter().any(|change| *change < -SAME);
        let what = if gain { "Latency: mean" } else { "Cost: mean latency" };
        format!(
            "{power}{work}. {}, {kept}; {}.{}",
            latency(what, self.latency_mean_change) + &mean,
            latency("p99", self.latency_p99_change),
            unsettled.unwrap_or_default()
        )
    }

    /// Whether the policy made no difference.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        [self.saved_share, self.throughput_change, self.latency_mean_change]
            .iter()
            .all(|change| change.abs() <= SAME)
    }
}

/// What the mean of all requests hides: the parts of the load whose own rises by more than `plf`.
fn hidden(first: &Side<'_>, side: &Side<'_>, plf: f64) -> String {
    let mean = |part: &PartSummary| part.latency_us.as_ref()?.mean;
    let rise = |(part, own): (&PartSummary, &PartSummary)| {
        Some((part.name.clone(), mean(own)? / mean(part)? - 1.0))
    };
    let pairs = first.parts.iter().zip(side.parts);
    let mut above: Vec<_> = pairs.filter_map(rise).filter(|(_, rise)| *rise > plf).collect();
    above.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let Some((name, most)) = above.first() else { return String::new() };
    let others = match above.len() - 1 {
        0 => String::new(),
        n => format!(" and {n} more above it"),
    };
    format!(" on the whole, but {name}'s {:+.1}%{others}", most * 100.0)
}

/// The size of a share in percent.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.1}%", share.abs() * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;

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

    fn told(side: Side<'_>) -> String {
        all(&[NATIVE, side], 0.2).pop().unwrap().text
    }

    #[test]
    fn a_saving_is_told_in_watts_in_a_year_and_with_its_cost() {
        let latency_us = Some((110.0, 300.0));
        let pacer = Side { policy: "pacer", watts: 350.0, latency_us, ..NATIVE };
        assert_eq!(
            told(pacer),
            "pacer would save 50.00 W of native's power (12.5%), 438.0 kWh a year at this load. \
             Cost: mean latency +10.0%, within the 20% allowed; p99 +50.0%."
        );
    }

    #[test]
    fn what_a_mean_hides_is_told() {
        let side = |above| Side { policy: "pacer", watts: 350.0, above: Some(above), ..NATIVE };
        let of = |side: Side<'_>| all(&[NATIVE, side], 0.2).pop().unwrap();
        assert!(of(side(0.05)).kept);
        let verdict = of(side(0.12));
        let cost = "mean latency unchanged, within the 20% allowed on the whole, but above it in \
                    12.0% of all 5 s; p99 unchanged.";
        assert!(!verdict.kept && verdict.text.ends_with(cost), "{}", verdict.text);
        assert!(!of(Side { sla_kept: Some(false), ..side(0.0) }).kept);
    }

    #[test]
    fn a_part_that_the_mean_of_all_hides_is_told() {
        let part = |name: &str, mean| PartSummary {
            name: name.to_owned(),
            requests: Some(1),
            bytes: 1,
            latency_us: Some(Latency { mean: Some(mean), ..Latency::default() }),
            drives: None,
            drive_joules: None,
        };
        let load = [("small", 100.0), ("large", 9e3), ("odd", 0.0)].map(|(n, us)| part(n, us));
        let told = |small, large, plf| {
            let parts = [part("small", small), part("large", large), part("odd", 0.0)];
            let sides = [Side { parts: &load, ..NATIVE }, Side { parts: &parts, ..NATIVE }];
            all(&sides, plf).pop().unwrap().text
        };
        let text = told(165.0, 9e3, 0.2);
        assert!(
            text.contains("within the 20% allowed on the whole, but small's +65.0%;"),
            "{text}"
        );
        let text = told(165.0, 12e3, 0.2);
        assert!(text.contains("but small's +65.0% and 1 more above it;"), "{text}");
        assert!(told(165.0, 9e3, 0.7).contains("within the 70% allowed;"));
    }

    #[test]
    fn what_a_sample_does_not_tell_is_left_open() {
        let of = |latency_mean_change| {
            let saved_watts = [48.0, 52.0];
            let difference =
                Difference { saved_watts, saved_kwh_per_year: None, latency_mean_change };
            let side =
                Side { policy: "pacer", watts: 350.0, difference: Some(difference), ..NATIVE };
            all(&[NATIVE, side], 0.2).pop().unwrap()
        };
        let verdict = of(Some([-0.1, 0.3]));
        let start = "pacer would save 50.00 ± 2.000 W of native's power (12.5%), 438.0 kWh";
        assert!(verdict.text.starts_with(start), "{}", verdict.text);
        assert!(verdict.text.contains("or not: the sample does not tell"), "{}", verdict.text);
        assert_eq!(verdict.interval.unwrap().saved_kwh_per_year.unwrap()[1].round(), 456.0);
        assert!(of(Some([-0.1, 0.1])).text.contains(", within the 20% allowed;"));
    }

    #[test]
    fn what_has_not_settled_is_not_told_for_a_year() {
        let unsettled = Some("pacer takes up to 28 s to settle");
        let verdict =
            all(&[NATIVE, Side { watts: 350.0, unsettled, ..NATIVE }], 0.2).pop().unwrap();
        assert_eq!((verdict.saved_watts, verdict.saved_kwh_per_year), (50.0, None));
        assert!(!verdict.text.contains("kWh"), "{}", verdict.text);
        let why = " No figure for a year: pacer takes up to 28 s to settle.";
        assert!(verdict.text.ends_with(why), "{}", verdict.text);
        let first = Side { unsettled, ..NATIVE };
        let verdict = all(&[first, Side { watts: 350.0, ..NATIVE }], 0.2).pop().unwrap();
        assert_eq!(verdict.saved_kwh_per_year, None, "nor against what has not");
    }

    #[test]
    fn no_saving_is_not_dressed_up() {
        let more = told(Side { policy: "x", watts: 420.0, sla_kept: Some(false), ..NATIVE });
        assert!(more.starts_with("x draws 20.00 W more than native (5.0%). Cost: "), "{more}");
        assert!(more.contains("which breaks the 20% allowed"), "{more}");
        let work = told(Side { policy: "x", watts: 420.0, iops: 1200.0, ..NATIVE });
        assert!(work.contains("serves 20.0% more requests: 12.5% less energy for each"), "{work}");
        let less = told(Side { policy: "x", watts: 380.0, iops: 800.0, ..NATIVE });
        let start = "x draws 20.00 W less than native (5.0%), and serves 20.0% fewer requests: \
                     18.7% more energy for each. Cost: ";
        assert!(less.starts_with(start), "fewer requests are no saving: {less}");
        let faster = told(Side { policy: "x", latency_us: Some((90.0, 200.0)), ..NATIVE });
        let end = "Latency: mean -10.0%, within the 20% allowed; p99 unchanged.";
        assert!(faster.ends_with(end), "{faster}");
    }

    #[test]
    fn runs_that_were_cut_short_are_not_compared() {
        assert!(all(&[NATIVE, Side { whole: false, ..NATIVE }], 0.2).is_empty());
        assert!(all(&[NATIVE, Side { latency_us: None, ..NATIVE }], 0.2).is_empty());
    }
}
