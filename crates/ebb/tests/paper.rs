//! `ebb paper` end to end, on its cheapest figures.

use crate::common::{json, prints, valid};
use serde_json::Value;

/// The report as JSON, checked for what is true of any report.
fn report(args: &[&str]) -> Value {
    let report = json(&[args, &["--json"]].concat());
    valid("paper-6", &report);
    for row in report["rows"].as_array().unwrap() {
        let kinds = ["calibrated", "as-stated", "stress", "reinterpreted"];
        assert!(kinds.contains(&row["kind"].as_str().unwrap()), "{row}");
        if row["twin"].is_null() {
            assert!(row["note"].is_string() && row["deviation"].is_null(), "{row}");
            continue;
        }
        if row["bound"].is_string() {
            assert!(row["verdict"].is_string() && row["deviation"].is_null(), "{row}");
            continue;
        }
        let number = |name: &str| row[name].as_f64().unwrap();
        // Percent saved are judged by what remains, percent over something by all of it.
        let quantity = row["quantity"].as_str().unwrap();
        let sign = match quantity.contains(", %") && !quantity.contains("share of") {
            true if [" saved", " below "].iter().any(|word| quantity.contains(word)) => -0.01,
            true if quantity.contains(" over ") => 0.01,
            _ => 0.0,
        };
        let ratio = |name| if sign == 0.0 { number(name) } else { 1.0 + sign * number(name) };
        let deviation = ratio("twin") / ratio("paper") - 1.0;
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
    assert!(rows.iter().all(|row| row["kind"] == "as-stated"));
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
fn the_version_names_the_sources_that_results_are_of() {
    let report = json(&["paper", "pacman", "--json"]);
    let version = format!("ebb {} (", env!("CARGO_PKG_VERSION"));
    let sources = format!("sources {})\n", report["sources"].as_str().unwrap());
    let printed = prints(&["--version"]);
    assert!(printed.starts_with(&version) && printed.ends_with(&sources), "{printed}");
}

#[test]
fn rows_are_kept_ones_unless_they_are_asked_for() {
    for (args, ran) in [(&["paper", "pacman"][..], false), (&["paper", "pacman", "--run"], true)] {
        let report = json(&[args, &["--json"]].concat());
        valid("paper-6", &report);
        let rows = report["rows"].as_array().unwrap();
        let kept = |id: &str| rows.iter().find(|row| row["id"] == id).unwrap()["kept"] == true;
        assert!(kept("fig-5d/vdi"), "it takes long");
        assert_eq!(kept("fig-1/ps0"), !ran);
        assert_eq!(report["curves"].as_array().unwrap().is_empty(), !ran);
        assert!(rows.iter().any(|row| row["kind"] == "predicted"), "of the fit");
    }
    let text = prints(&["paper", "pacman"]);
    for words in ["Nothing was run", "rows of `ebb paper pacman", "commit", "studies/pacman"] {
        assert!(text.contains(words), "'{words}' is not in:\n{text}");
    }
}

/// A change that moves one of these makes the others stale, too: keep them anew.
#[test]
fn the_cheapest_rows_are_those_that_are_kept() {
    let found = |args: &[&str]| {
        let report = json(&[&["paper"], args, &["--json"]].concat());
        let rows = report["rows"].as_array().unwrap().clone();
        rows.into_iter().map(|row| (row["id"].clone(), row["twin"].as_f64())).collect::<Vec<_>>()
    };
    for (name, figure, id) in [
        ("pacer", "table-1", "table-1/idle-1"),
        ("pacman", "3", "fig-3b/collecting"),
        ("sandman", "power", "power/light-system"),
        ("eadc", "5", "fig-5/at-full"),
        ("storage-servers", "inputs", "inputs/board"),
    ] {
        let twin = |rows: Vec<(Value, Option<f64>)>| {
            rows.into_iter().find(|row| row.0 == id).unwrap().1.unwrap()
        };
        let (kept, now) = (twin(found(&[name])), twin(found(&[name, "--figure", figure])));
        let same = (now / kept - 1.0).abs() < 1e-9;
        assert!(same, "{name}: {id} is {now}, kept {kept}: python3 studies/keep.py {name}");
    }
}

#[test]
fn a_fit_is_printed_with_what_repeats_it() {
    let args = ["paper", "eadc", "--figure", "fit"];
    let text = prints(&args);
    for words in [
        "Computed beforehand, by ebb-lab fit studies/eadc/fit.toml",
        "points were simulated",
        "predicted",
    ] {
        assert!(text.contains(words), "'{words}' is not in:\n{text}");
    }
    let report = json(&[&args[..], &["--json"]].concat());
    valid("paper-6", &report);
    assert_eq!(report["fits"][0]["declaration"], "studies/eadc/fit.toml");
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
    let one = report(&args);
    assert_eq!(one, report(&[&args[..], &["--threads", "3"]].concat()));
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

/// The points of the first curve of `figure` whose series begins so, by rising x.
fn curve(report: &Value, figure: &str, series: &str) -> Vec<(f64, f64)> {
    let curves = report["curves"].as_array().unwrap().iter();
    let is = |curve: &&Value| {
        curve["figure"] == figure && curve["series"].as_str().unwrap().starts_with(series)
    };
    let curve = curves.clone().find(is);
    let curve = curve.unwrap_or_else(|| panic!("{figure} has no curve of {series}"));
    let numbers = |name: &str| curve[name].as_array().unwrap().iter().map(|v| v.as_f64().unwrap());
    let mut points: Vec<_> = numbers("x").zip(numbers("y")).collect();
    assert!(points.len() >= 4 && points.iter().all(|(x, y)| x.is_finite() && y.is_finite()));
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// The twin's value of the row whose quantity begins so.
fn twin(report: &Value, figure: &str, quantity: &str, kind: &str) -> f64 {
    let rows = report["rows"].as_array().unwrap().iter();
    let is = |row: &&Value| {
        row["figure"] == figure && row["quantity"].as_str().unwrap().starts_with(quantity)
    };
    let row = rows.clone().find(is);
    let row = row.unwrap_or_else(|| panic!("{figure} has no row of {quantity}"));
    assert_eq!(row["kind"], kind, "{row}");
    row["twin"].as_f64().unwrap()
}

/// Whether y falls (-1) or rises (1) with x from each point to the next, but for `slack`.
fn goes(points: &[(f64, f64)], sign: f64, slack: f64) -> bool {
    points.windows(2).all(|pair| sign * (pair[1].1 - pair[0].1) >= -slack)
}

#[test]
fn eadcs_heat_goes_as_the_study_has_it() {
    let args = ["paper", "eadc", "--figure", "3", "--figure", "4", "--figure", "7"];
    let report = report(&[&args[..], &["--figure", "8", "--duration", "240 s"]].concat());
    // Fig. 3: cooling costs fans, heat costs leakage, and their sum is least between.
    let of = |what| curve(&report, "Fig. 3", what);
    let (fans, leakage, sum) = (of("fans, W"), of("leakage, W"), of("fans and leakage, W"));
    assert!(goes(&fans, -1.0, 0.1) && goes(&leakage, 1.0, 0.1), "{fans:?} {leakage:?}");
    let least = sum.iter().map(|at| at.1).fold(f64::INFINITY, f64::min);
    assert!(sum[0].1 > 1.2 * least && sum[sum.len() - 1].1 > 1.05 * least, "{sum:?}");
    let best = twin(&report, "Fig. 3", "temperature of the least sum", "calibrated");
    assert!((60.0..75.0).contains(&best), "{best}");
    let rpm = twin(&report, "Fig. 3", "fan speed of the least sum", "calibrated");
    assert!((1800.0..3000.0).contains(&rpm), "{rpm}");
    // Fig. 4: what is left below 90 °C, and less of it in warmer air.
    let inlet = |inlet: u32| {
        curve(
            &report,
            "Fig. 4",
            &format!("head-room, K, over the hottest socket, °C; inlet {inlet}"),
        )
    };
    for at in [15, 20, 25, 30].map(inlet).concat() {
        assert!((at.0 + at.1 - 90.0).abs() < 1e-9 && at.1 > 0.0, "{at:?}");
    }
    assert!(inlet(15)[0].1 > inlet(30)[0].1 + 10.0);
    // Fig. 7: what the disks lose, the work takes longer and costs more.
    let (time, energy) = (curve(&report, "Fig. 7", "time"), curve(&report, "Fig. 7", "energy"));
    assert!(goes(&time, 1.0, 0.01) && goes(&energy, 1.0, 0.01), "{time:?} {energy:?}");
    let longer = twin(&report, "Fig. 7", "time of the work at 20 %", "as-stated");
    assert!((1.15..1.4).contains(&longer), "{longer}");
    // Fig. 8: all of it over temperature, as shares of the most.
    for (what, sign) in [
        ("fans, of", -1.0),
        ("leakage, of", 1.0),
        ("head-room, of", -1.0),
        ("vibration", -1.0),
        ("disk throughput, of", 1.0),
    ] {
        let points = curve(&report, "Fig. 8", what);
        assert!(goes(&points, sign, 0.01), "{what}: {points:?}");
        let most = points.iter().map(|at| at.1).fold(0.0, f64::max);
        assert!((most - 1.0).abs() < 1e-9, "{what}: {points:?}");
        assert!(points.iter().any(|at| at.1 < 0.8), "{what}: {points:?}");
    }
}

#[test]
fn eadc_settles_near_the_least_sum() {
    let report = report(&["paper", "eadc", "--figure", "3", "--figure", "8"]);
    let best = twin(&report, "Fig. 3", "temperature of the least sum", "calibrated");
    let settled = twin(&report, "Fig. 8", "temperature that EADC settles at", "as-stated");
    assert!((best - settled).abs() < 6.0, "{settled}, least at {best}");
}

#[test]
fn eadcs_policies_stand_beside_what_the_study_states() {
    let report = report(&["paper", "eadc", "--figure", "10"]);
    let stated = |figure: &str, quantity: &str| twin(&report, figure, quantity, "as-stated");
    let within = |value: f64, from: f64, to: f64| assert!((from..to).contains(&value), "{value}");
    within(stated("Fig. 10(a)", "EADC's disk wait saved on E6"), -1.0, 100.0);
    within(stated("Fig. 10(b)", "EADC's energy saved, mean"), 0.0, 100.0);
    within(stated("§VII-A", "highest fan duty under EADC"), 20.0, 60.0);
    within(stated("§VII-A", "speedup of query 19 on E6"), 0.98, 3.0);
    within(stated("§VII-A", "speedup of queries, mean"), -2.0, 100.0);
    within(stated("§VII-A", "disk bandwidth lost to vibration under DLB"), 0.0, 70.0);
    for which in ["E2, most", "E6, mean", "E6, W4"] {
        within(stated("§VII-A", &format!("throttling under EADC on {which}")), 0.0, 50.0);
    }
    // As the paper states them, or that there is nothing to be a multiple of.
    let rows = report["rows"].as_array().unwrap();
    for (name, stated) in [("JETC", 1.8), ("DTM", 4.5)] {
        let quantity = format!("EADC's energy saving over {name}'s on E6, x");
        let row = rows.iter().find(|row| row["quantity"] == quantity.as_str()).unwrap();
        assert_eq!(row["paper"], stated);
        match row["twin"].as_f64() {
            Some(times) => assert!(times > 0.0, "{row}"),
            None => assert!(row["note"].as_str().unwrap().contains("no saving"), "{row}"),
        }
    }
    // Over fans at full speed, which is not what the paper says it compares with.
    let reading = |figure, quantity| twin(&report, figure, quantity, "reinterpreted");
    within(reading("Fig. 10(a)", "disk wait saved on E6 over full fans"), 30.0, 80.0);
    within(reading("Fig. 10(b)", "energy saved on E6 over full fans"), 30.0, 80.0);
    within(reading("§VII-A", "speedup of query 19 on E6 over full fans"), 1.2, 3.0);
    for policy in ["dtm", "jetc", "eadc:", "eadc-plus"] {
        assert_eq!(curve(&report, "Fig. 10(a)", policy).len(), 4, "Q, E2, E4, E6");
        assert_eq!(curve(&report, "Fig. 10(b)", policy).len(), 4, "Q, E2, E4, E6");
    }
}
