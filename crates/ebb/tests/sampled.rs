//! `ebb sim --sampled`: what a sample says of a load, beside what the whole load tells.

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{fails, json, path, valid};

/// A day in three hours, on whose server one seed is one load.
const DAY: &str = "name = 'day'\n[[arrivals]]\nname = 'day'\nrate = '250 IOPS'\n\
    access = { block = '8 KiB', read = 0.7 }\n\
    shape.day = { length = '3 h', peaks = 6, height = 10.0, share = 0.05 }\n";

fn runs(load: &str, more: &[&str]) -> Value {
    let server = ["sim", "--profile", "generic-1u", "--policy", "native", "--policy", "pacer"];
    let result = json(&[&server[..], &["--workload", load], more, &["--json"]].concat());
    valid("sim-1", &result);
    result
}

/// Whether the intervals of a sample hold the watts, the saving and the mean latency of the whole.
fn held(sample: &Value, whole: &Value) -> [bool; 3] {
    let within = |interval: &Value, value: &Value| {
        let [low, high] = [0, 1].map(|end| interval[end].as_f64().unwrap());
        (low..=high).contains(&value.as_f64().unwrap())
    };
    let (run, same) = (&sample["runs"][1], &whole["runs"][1]);
    let saved = &sample["verdicts"][0]["interval"]["saved_watts"];
    [
        within(&run["interval"]["mean_watts"], &same["mean_watts"]),
        within(saved, &whole["verdicts"][0]["saved_watts"]),
        within(&run["interval"]["latency_mean_us"], &same["latency_us"]["mean"]),
    ]
}

/// Whole days beside samples of them: at least 17 of 20 are within the interval of 90 %.
/// `./campaign` takes 20 days (`EBB_DAYS`) from another seed on (`EBB_SEED`).
#[test]
fn intervals_hold_what_whole_days_tell() {
    let stated = |name: &str, usual| {
        std::env::var(name).map_or(usual, |number| number.parse::<u32>().unwrap())
    };
    let (days, first) = (stated("EBB_DAYS", 2), stated("EBB_SEED", 1));
    let folder = TempDir::new().unwrap();
    let load = path(folder.path(), "day.toml");
    std::fs::write(&load, DAY).unwrap();
    let mut all = [0; 3];
    for seed in first..first + days {
        let seed = seed.to_string();
        let of =
            |more: &[&str]| runs(&load, &[&["--duration", "3 h", "--seed", &seed], more].concat());
        let sample = of(&["--sampled", "25%"]);
        let told = &sample["sampled"];
        let lead = format!("{}s", told["lead_seconds"]);
        let whole = of(&["--warmup", &lead]);
        let held = held(&sample, &whole);
        println!("seed {seed}: watts, saving and mean latency within their intervals: {held:?}");
        all.iter_mut().zip(held).for_each(|(all, held)| *all += u32::from(held));
        assert!(told["share"].as_f64().unwrap() < 0.4, "{told}");
        assert!(told["highest_iops"].as_f64() >= told["highest_iops_not_simulated"].as_f64());
        assert!(sample["verdicts"][0]["saved_kwh_per_year"].is_number(), "{sample}");
        let requests = |result: &Value| result["runs"][0]["requests"].as_f64().unwrap();
        assert!((requests(&sample) / requests(&whole) - 1.0).abs() < 0.01, "what was expected");
    }
    println!("of {days} days: {all:?}");
    assert!(all.iter().all(|held| held + (3 * days).div_ceil(20) >= days), "{all:?} of {days}");
}

#[test]
fn the_whole_load_is_its_own_sample() {
    let folder = TempDir::new().unwrap();
    let load = path(folder.path(), "day.toml");
    std::fs::write(&load, DAY).unwrap();
    let sample = runs(&load, &["--duration", "50 min", "--sampled", "100%"]);
    assert_eq!(sample["sampled"]["drawn"], sample["sampled"]["windows"]);
    assert_eq!(sample["sampled"]["highest_iops_not_simulated"], Value::Null);
    let [low, high] = [0, 1].map(|end| sample["runs"][1]["interval"]["mean_watts"][end].as_f64());
    assert_eq!(low, high, "nothing is left to chance");
    let whole = runs(&load, &["--duration", "50 min", "--warmup", "30s"]);
    for policy in 0..2 {
        let [one, other] = [&sample, &whole].map(|result| &result["runs"][policy]);
        let watts = [one, other].map(|run| run["mean_watts"].as_f64().unwrap());
        assert!((watts[0] / watts[1] - 1.0).abs() < 1e-6, "{watts:?}");
        for name in ["mean", "p50", "p99"] {
            let [one, other] = [one, other].map(|run| run["latency_us"][name].as_f64().unwrap());
            assert!((one / other - 1.0).abs() < 2e-3, "{name}: {one} {other}");
        }
    }
}

#[test]
fn what_has_no_share_is_refused() {
    let refused = |args: &[&str], why: &str| {
        let (code, error) = fails(&[&["sim", "--sampled", "5%"], args].concat());
        assert!(code == 2 && error.contains(why), "{args:?}: {code} {error}");
    };
    refused(&["--workload", "rand-rw"], "needs a load that comes by the clock");
    let day = ["--workload", "diurnal", "--rate", "100 IOPS"];
    let with = |more: &[&'static str]| [&day[..], more].concat();
    refused(&with(&["--warmup", "5s"]), "--warmup contradicts --sampled");
    refused(&with(&["--faults", "1"]), "--faults contradicts --sampled");
    refused(&with(&["--change", "20 s: plf 10%"]), "--change contradicts --sampled");
    refused(&with(&["--policy", "clairvoyant-cores"]), "knows the whole load");
    refused(&with(&["--duration", "2 min"]), "simulate it whole");
    let (code, error) = fails(&["sim", "--workload", "diurnal", "--sampled", "0%"]);
    assert!(code == 2 && error.contains("above 0"), "{error}");
}
