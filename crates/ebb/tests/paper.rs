//! `ebb paper` end to end, on its cheapest figures.
#![allow(clippy::unwrap_used)]

mod common;

use common::{json, prints, valid};
use serde_json::Value;

/// The report as JSON, checked for what is true of any report.
fn report(args: &[&str]) -> Value {
    let report = json(&[args, &["--json"]].concat());
    valid("paper-2", &report);
    for row in report["rows"].as_array().unwrap() {
        let kinds = ["calibrated", "validated", "reinterpreted"];
        assert!(kinds.contains(&row["kind"].as_str().unwrap()), "{row}");
        if row["twin"].is_null() {
            assert!(row["note"].is_string() && row["deviation"].is_null(), "{row}");
            continue;
        }
        let number = |name: &str| row[name].as_f64().unwrap();
        let deviation = number("twin") / number("paper") - 1.0;
        assert!((number("deviation") - deviation).abs() < 1e-9, "{row}");
    }
    report
}

fn deviation(row: &Value) -> f64 {
    row["deviation"].as_f64().unwrap().abs()
}

fn figures(report: &Value) -> Vec<&str> {
    let rows = report["rows"].as_array().unwrap();
    let mut figures: Vec<_> = rows.iter().map(|row| row["figure"].as_str().unwrap()).collect();
    figures.dedup();
    figures
}

#[test]
fn pacers_table_of_its_ssd_is_met_within_a_percent() {
    let report = report(&["paper", "pacer", "--figure", "table-1", "--duration", "10 s"]);
    assert_eq!(figures(&report), ["Table I"]);
    let rows = report["rows"].as_array().unwrap();
    let of_one = |row: &&Value| !row["quantity"].as_str().unwrap().starts_with("whole server");
    let ssd: Vec<_> = rows.iter().filter(of_one).collect();
    assert_eq!(ssd.len(), 13, "six powers, five also relative, and two wake-ups");
    for row in ssd {
        assert_eq!(row["kind"], "calibrated", "{row}");
        assert!(deviation(row) < 0.01, "{row}");
    }
}

#[test]
fn pacmans_parts_are_met_where_they_set_the_model() {
    let figures_of = ["--figure", "table-1", "--figure", "1", "--figure", "3"];
    let report = report(&[&["paper", "pacman"], &figures_of[..]].concat());
    let rows = report["rows"].as_array().unwrap();
    for row in rows.iter().filter(|row| row["figure"] != "Fig. 3(a)") {
        assert_eq!(row["kind"], "calibrated", "{row}");
        assert!(deviation(row) < 0.1, "{row}");
    }
    for figure in ["Table I", "§II-A", "§VI-A", "Fig. 1", "Fig. 2", "Fig. 3(a)", "Fig. 3(b)"] {
        assert!(figures(&report).contains(&figure), "{figure}");
    }
    let curves = report["curves"].as_array().unwrap();
    assert!(curves.iter().any(|curve| curve["figure"] == "Fig. 1"));
}

#[test]
fn results_are_compared_and_do_not_depend_on_threads() {
    let args = ["paper", "pacer", "--figure", "19", "--duration", "10 s"];
    let result = report(&args);
    let rows = result["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["kind"] == "validated"));
    for (quantity, stated) in [
        ("power saved by PACER, 3d-unet, %", 13.0),
        ("power saved by PACER, bert, %", 22.0),
        ("power of native over PACER's, 3d-unet, x", 1.15),
        ("power of native over PACER's, bert, x", 1.28),
    ] {
        let row = rows.iter().find(|row| row["quantity"] == quantity).unwrap();
        assert_eq!(row["paper"], stated);
    }
    let on = |threads, seed| {
        prints(&[&args[..], &["--json", "--threads", threads, "--seed", seed]].concat())
    };
    assert_eq!(on("1", "1"), on("3", "1"));
    assert_ne!(on("1", "1"), on("1", "2"));
}

#[test]
fn people_get_a_table_that_says_what_is_simulated() {
    let text = prints(&["paper", "pacman", "--figure", "1", "--figure", "2"]);
    for words in ["figure", "deviation", "Fig. 2", "176", "calibrated", "Simulated", "seed 1"] {
        assert!(text.contains(words), "'{words}' is not in:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    assert!(!text.contains("Fig. 5"), "only what was asked for");
}

#[test]
fn sandmans_table_of_system_power_is_met_within_two_percent() {
    let report = report(&["paper", "sandman", "--figure", "power"]);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12, "three parts and their sum in three states");
    for row in rows {
        assert_eq!(row["kind"], "calibrated", "{row}");
        assert!(deviation(row) < 0.02, "{row}");
    }
}

#[test]
fn sandmans_parts_each_show_in_the_ablation_and_repeat_for_any_number_of_threads() {
    let args = ["paper", "sandman", "--figure", "ablation"];
    let one = report(&[&args[..], &["--threads", "1"]].concat());
    assert_eq!(one, report(&[&args[..], &["--threads", "2"]].concat()));
    let curves = one["curves"].as_array().unwrap();
    let p99 = |step: usize| curves[step]["y"][2].as_f64().unwrap();
    // Without burst detection a burst waits for the next second; with it, for some 10 us.
    assert!(p99(2) > 10.0 * p99(0), "{} {}", p99(2), p99(0));
    assert!(p99(3) < 1.5 * p99(0), "{} {}", p99(3), p99(0));
    let watts = &curves.last().unwrap()["y"];
    assert!(watts[4].as_f64() < watts[0].as_f64(), "{watts}");
}

#[test]
fn eadcs_disks_lose_over_fan_speed_what_they_were_calibrated_on() {
    let report = report(&["paper", "eadc", "--figure", "5", "--figure", "6"]);
    for row in report["rows"].as_array().unwrap() {
        assert_eq!(row["kind"], "calibrated", "{row}");
        assert!(deviation(row) < 0.03, "{row}");
    }
    let rack = &report["curves"].as_array().unwrap()[1];
    assert_eq!(rack["figure"], "Fig. 6");
    let speeds: Vec<_> =
        rack["y"].as_array().unwrap().iter().map(|y| y.as_f64().unwrap()).collect();
    assert!(speeds.windows(2).all(|pair| pair[1] <= 1.01 * pair[0]), "{speeds:?}");
    assert!(speeds[5] < 0.6 * speeds[0], "{speeds:?}");
}
