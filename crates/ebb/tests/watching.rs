//! Alerts and dashboard: whatever they name is a metric of `ebb run`.

use std::collections::BTreeSet;

use ebb_policy::table::SIGNALS;
use ebb_policy::{Control, Unit};
use serde_json::Value;

const ALERTS: &str = include_str!("../../../packaging/prometheus/ebb-alerts.yml");
const DASHBOARD: &str = include_str!("../../../packaging/grafana/ebb.json");

/// What a row of the table is called as a metric: its unit stands at the end, once.
fn metric(kind: &str, name: &str, unit: Unit) -> String {
    let (short, unit) = match unit {
        Unit::Watts => ("_watts", "_watts"),
        Unit::Seconds => ("_seconds", "_seconds"),
        Unit::Hertz => ("_hz", "_hertz"),
        Unit::Bytes => ("_bytes", "_bytes"),
        Unit::Celsius => ("", "_celsius"),
        Unit::BytesPerSecond => ("", "_bytes_per_second"),
        Unit::Rpm => ("", "_rpm"),
        Unit::Share => ("", "_ratio"),
        Unit::Count | Unit::Index | Unit::PerSecond | Unit::Flag | Unit::Mode => ("", ""),
    };
    format!("ebb_{kind}_{}{unit}", name.strip_suffix(short).unwrap_or(name))
}

fn known() -> BTreeSet<String> {
    let signals = SIGNALS.iter().map(|row| metric("signal", row.name, row.unit));
    let rows = Control::ALL.iter().map(|control| control.row());
    let controls = rows.map(|row| metric("control", row.name, row.unit));
    // Of the run itself: those of the page, which a test compares with what is served.
    let page = include_str!("../../../docs/run.md");
    let of_run = page.split('`').filter(|word| word.starts_with("ebb_run")).map(str::to_owned);
    let buckets = of_run.clone().map(|name| name + "_bucket");
    signals.chain(controls).chain(of_run).chain(buckets).collect()
}

/// The metrics in an expression.
fn named(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("ebb_"))
}

#[test]
fn alerts_and_dashboard_name_metrics_that_there_are() {
    let known = known();
    let of_alerts = ALERTS.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut metrics: Vec<&str> = of_alerts.flat_map(named).collect();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels {
        for target in panel["targets"].as_array().unwrap() {
            let before = metrics.len();
            metrics.extend(named(target["expr"].as_str().unwrap()));
            assert!(metrics.len() > before, "{target:#}");
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        metrics.extend(variable["query"]["query"].as_str().into_iter().flat_map(named));
    }
    assert!(metrics.len() > 20, "{metrics:?}");
    for metric in metrics {
        assert!(known.contains(metric), "{metric} is no metric of ebb run");
    }
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len());
}
