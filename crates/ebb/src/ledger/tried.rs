//! What the trial of a run says: means of its blocks, with an interval.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Pair, range};

/// Fewer all agree in sign by chance in 2 of 32 trials.
const LEAST: usize = 6;

/// Of one policy and one meter.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct Tried {
    pub policy: String,
    /// The signal of power, measured.
    #[schemars(extend("enum" = ["power", "cpu_power"]))]
    pub of: String,
    /// As found.
    #[schemars(range(min = 1))]
    pub blocks: usize,
    /// Mean power in these.
    pub found_w: f64,
    /// How much less Ebb takes around them.
    pub saved_w: Estimate,
    /// By which share requests take longer with Ebb.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slower: Option<Estimate>,
}

/// A mean of differences, and its 95 % interval where there are enough of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Estimate {
    pub mean: f64,
    /// 95 %, Student's; absent of fewer than six blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

impl Estimate {
    fn of(differences: &[f64]) -> Self {
        let count = differences.len() as f64;
        let mean = differences.iter().sum::<f64>() / count;
        let square: f64 = differences.iter().map(|one| (one - mean).powi(2)).sum();
        let half = student(count - 1.0) * (square / (count - 1.0) / count).sqrt();
        let interval = (differences.len() >= LEAST).then_some([mean - half, mean + half]);
        Self { mean, interval }
    }
}

/// The 97.5th percentile of Student's t with so many degrees of freedom: the expansion around the
/// normal one (Abramowitz and Stegun 26.7.5), within 0.2 % from five on.
fn student(freedom: f64) -> f64 {
    const Z: f64 = 1.959_963_985;
    let power = |exponent| Z.powi(exponent);
    Z + (power(3) + Z) / (4.0 * freedom)
        + (5.0 * power(5) + 16.0 * power(3) + 3.0 * Z) / (96.0 * freedom.powi(2))
        + (3.0 * power(7) + 19.0 * power(5) + 17.0 * power(3) - 15.0 * Z)
            / (384.0 * freedom.powi(3))
}

/// By policy and meter, those with the most blocks first.
pub fn tried(pairs: &[Pair]) -> Vec<Tried> {
    let mut all = BTreeMap::<_, Vec<&Pair>>::new();
    pairs.iter().for_each(|pair| all.entry((&pair.policy, &pair.of)).or_default().push(pair));
    let one = |((policy, of), pairs): ((&String, &String), Vec<&Pair>)| {
        let saved: Vec<_> = pairs.iter().map(|pair| pair.found_w - pair.ebb_w).collect();
        let slower = |pair: &&Pair| Some(pair.ebb_s? / pair.found_s.filter(|at| *at > 0.0)? - 1.0);
        let slower: Vec<_> = pairs.iter().filter_map(slower).collect();
        Tried {
            policy: policy.clone(),
            of: of.clone(),
            blocks: pairs.len(),
            found_w: pairs.iter().map(|pair| pair.found_w).sum::<f64>() / pairs.len() as f64,
            saved_w: Estimate::of(&saved),
            slower: (!slower.is_empty()).then(|| Estimate::of(&slower)),
        }
    };
    let mut tried: Vec<_> = all.into_iter().map(one).collect();
    tried.sort_by_key(|one| std::cmp::Reverse(one.blocks));
    tried
}

impl Tried {
    /// Of a run that was at work for so many `hours`, all of them by this policy, for people.
    pub fn text(&self, hours: Option<f64>) -> String {
        let Self { policy, blocks, found_w, saved_w, slower, .. } = self;
        let of = if self.of == "power" { "the server" } else { "its processors" };
        let head = format!("{blocks} blocks as found, measured: {of} took {found_w:.1} W");
        let Some(interval) = saved_w.interval else {
            return format!("{head}; {LEAST} are needed for an interval of what {policy} saves");
        };
        let [least, most] = interval;
        let kwh = hours.map_or(String::new(), |hours| {
            let of = |watts: f64| watts * hours / 1000.0;
            format!(", {} kWh in the {hours:.1} h at work", range(&[of(least), of(most)]))
        });
        let slower = slower.map_or(String::new(), |slower| {
            let of = |share: f64| format!("{:+.1} %", 100.0 * share);
            let range = slower.interval.map(|[a, b]| format!(" ({} to {})", of(a), of(b)));
            format!("; mean latency {}{}", of(slower.mean), range.unwrap_or_default())
        });
        format!(
            "{head}; {policy} saves {:.1} W of it ({least:.1} to {most:.1}, 95 % interval)\
             {kwh}{slower}",
            saved_w.mean
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(policy: &str, found_w: f64, ebb_w: f64) -> Pair {
        let (policy, of) = (policy.to_owned(), "power".to_owned());
        Pair { unix_s: 0.0, of, policy, found_w, ebb_w, found_s: Some(1e-4), ebb_s: Some(1.05e-4) }
    }

    #[test]
    fn an_interval_needs_six_blocks_and_is_student_s() {
        // Of tables.
        for (freedom, of) in [(5.0, 2.5706), (9.0, 2.2622), (29.0, 2.0452), (200.0, 1.9719)] {
            assert!((student(freedom) / of - 1.0).abs() < 2e-3, "{freedom}");
        }
        let few: Vec<_> = (0..5).map(|_| pair("pacer", 110.0, 100.0)).collect();
        assert_eq!(tried(&few)[0].saved_w, Estimate { mean: 10.0, interval: None });
        assert!(tried(&few)[0].text(None).contains("6 are needed for an interval"));
        let six =
            [9.0, 11.0, 9.0, 11.0, 9.0, 11.0].map(|saved| pair("pacer", 110.0, 110.0 - saved));
        let mut all = six.to_vec();
        all.push(pair("pacer-plus", 110.0, 80.0));
        let told = tried(&all);
        assert_eq!(told.iter().map(|one| one.blocks).collect::<Vec<_>>(), [6, 1]);
        let [least, most] = told[0].saved_w.interval.unwrap();
        // 1.0954 / √6 times 2.5706.
        assert!((least - 8.850).abs() < 0.005 && (most - 11.150).abs() < 0.005, "{least} {most}");
        let text = told[0].text(Some(100.0));
        let told = "pacer saves 10.0 W of it (8.9 to 11.1, 95 % interval), 0.885 to 1.115 kWh in \
                    the 100.0 h at work";
        assert!(text.contains(told), "{text}");
        assert!(text.ends_with("mean latency +5.0 % (+5.0 % to +5.0 %)"), "{text}");
    }
}
