//! Where a run stands as metrics: signals and controls with the names and the help of their table,
//! and what there is of the run itself (docs/run.md).

use std::fmt;

use ebb_policy::table::{SIGNALS, SignalRow};
use ebb_policy::{Control, ControlRow, Domain, Outcome, Unit};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry;

use super::board::{LATE, Totals, View};
use super::events::{State, Tick};
use crate::metrics::text::{Histogram, Labels, Writer, family, labels};

/// Shows where a run stands.
#[derive(Debug)]
pub struct Scrape(pub View);

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut writer = Writer::new(encoder);
        self.totals(&mut writer)?;
        let Some(tick) = self.0.last() else { return Ok(()) };
        self.run(&mut writer, tick)?;
        SIGNALS.iter().try_for_each(|row| self.signal(&mut writer, tick, row))?;
        Control::ALL.iter().try_for_each(|control| self.control(&mut writer, tick, *control))
    }
}

/// A name of the table without its unit, and the unit as metrics have it.
fn named(name: &str, unit: Unit) -> (&str, Option<registry::Unit>) {
    use registry::Unit::{Bytes, Celsius, Other, Seconds};
    let other = |unit: &str| Some(Other(unit.to_owned()));
    match unit {
        Unit::Bytes => (name.strip_suffix("_bytes").unwrap_or(name), Some(Bytes)),
        Unit::Seconds => (name.strip_suffix("_seconds").unwrap_or(name), Some(Seconds)),
        Unit::Celsius => (name, Some(Celsius)),
        Unit::Hertz => (name.strip_suffix("_hz").unwrap_or(name), other("hertz")),
        Unit::Watts => (name.strip_suffix("_watts").unwrap_or(name), other("watts")),
        Unit::BytesPerSecond => (name, other("bytes_per_second")),
        Unit::Rpm => (name, other("rpm")),
        Unit::Share => (name, other("ratio")),
        Unit::Count | Unit::Index | Unit::PerSecond | Unit::Flag | Unit::Mode => (name, None),
    }
}

impl Scrape {
    /// Which part a row is of.
    fn part(&self, domain: Domain, at: usize) -> Labels {
        let label = match domain {
            Domain::CoreGroup => "core_group",
            _ => domain.title(),
        };
        self.0.names.of(domain, at as u16).map(|name| (label, name)).into_iter().collect()
    }

    fn signal(&self, out: &mut Writer<'_>, tick: &Tick, row: &SignalRow) -> fmt::Result {
        let of = |at: usize| {
            let value = (row.read)(&tick.signals, at)?;
            let mut labels = self.part(row.domain, at);
            let source = tick.signals.sources.of(row.signal, at).origin;
            labels.push(("source", source.name().to_owned()));
            Some((labels, value))
        };
        let rows: Vec<_> = (0..row.domain.count(&self.0.topology)).filter_map(of).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let (name, unit) = named(row.name, row.unit);
        let name = format!("signal_{name}");
        let family = family(&name, row.text);
        out.gauges(&unit.into_iter().fold(family, |family, unit| family.in_unit(unit)), rows)
    }

    fn control(&self, out: &mut Writer<'_>, tick: &Tick, control: Control) -> fmt::Result {
        let ControlRow { name, domain, unit, text, .. } = *control.row();
        let (mut values, mut outcomes) = (Vec::new(), Vec::new());
        for at in 0..tick.in_force.count(control) {
            let with = |name: &'static str, value: &str| {
                let mut labels = self.part(domain, at);
                labels.push((name, value.to_owned()));
                labels
            };
            let given = tick.in_force.at(control, at);
            let outcome = tick.applied.of(control, at);
            let applied = given.given.filter(|_| !self.0.would && outcome == Outcome::Done);
            let all = [("asked", given.asked), ("given", given.given), ("applied", applied)];
            let of = |(name, value): (&str, Option<f64>)| Some((with("value", name), value?));
            values.extend(all.into_iter().filter_map(of));
            if !self.0.would {
                outcomes.push((with("outcome", outcome.name()), 1.0));
            }
        }
        let (name, unit) = named(name, unit);
        let name = format!("control_{name}");
        if !values.is_empty() {
            let family = family(&name, text);
            let family = unit.into_iter().fold(family, |family, unit| family.in_unit(unit));
            out.gauges(&family, values)?;
        }
        if outcomes.is_empty() {
            return Ok(());
        }
        let name = format!("{name}_outcome");
        out.gauges(&family(&name, "1 for what became of it: done, refused, changed."), outcomes)
    }

    fn run(&self, out: &mut Writer<'_>, tick: &Tick) -> fmt::Result {
        let about = labels([
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("policy", tick.settings.policy.clone()),
            ("profile", self.0.profile.clone()),
        ]);
        let info = family("run", "What runs: always 1, see the labels.");
        out.gauges(&info, vec![(about, 1.0)])?;
        let state = family("run_state", "1 for the state that it is in.");
        let is = |name: &&str| f64::from(u8::from(*name == tick.state.name()));
        let rows =
            State::NAMES.iter().map(|name| (labels([("state", (*name).to_owned())]), is(name)));
        out.gauges(&state, rows.collect())?;
        let failing = match tick.state {
            State::Degraded(count) => count,
            _ => 0,
        };
        let name = "run_settings_failing";
        let failing_family = family(name, "Settings that are refused or another program's.");
        out.gauges(&failing_family, vec![(labels([]), failing as f64)])?;
        let time = family("run_last_cycle_time", "When the last cycle was, since 1970.");
        let time = time.in_unit(registry::Unit::Seconds);
        out.gauges(&time, vec![(labels([]), tick.unix_s)])?;
        let plf = family("run_tolerated_loss", "Tolerated rise of the mean latency.");
        let plf = plf.in_unit(registry::Unit::Other("ratio".to_owned()));
        out.gauges(&plf, vec![(labels([]), tick.settings.plf)])?;
        let Some(bounds) = tick.saving else { return Ok(()) };
        let of =
            |bound: &str| labels([("bound", bound.to_owned()), ("source", "modelled".to_owned())]);
        let rows = [(of("least"), bounds[0].0), (of("most"), bounds[1].0)];
        let saving = family(
            if self.0.would { "run_saving_possible" } else { "run_saving" },
            "MODELLED mean saving of cores against the settings found, at least and at most.",
        );
        out.gauges(&saving.in_unit(registry::Unit::Other("watts".to_owned())), rows.into())
    }

    fn totals(&self, out: &mut Writer<'_>) -> fmt::Result {
        let Totals { cycles, decisions, refused, recalls, late, lateness, lost, unread } =
            &self.0.totals;
        let one = |value: u64| vec![(labels([]), value)];
        out.counts(&family("run_cycles", "Cycles since the start."), one(*cycles))?;
        let changed = family("run_decisions", "Changes of controls, by their reason.");
        let of =
            |(reason, count): (&&str, &u64)| (labels([("reason", (*reason).to_owned())]), *count);
        out.counts(&changed, decisions.iter().map(of).collect())?;
        let family_ = family(
            "run_refusals",
            "Changes refused: by the guard, or by the machine or another program.",
        );
        let rows = refused.iter().map(|((control, by), count)| {
            let control = control.row().name.to_owned();
            (labels([("control", control), ("by", by.name().to_owned())]), *count)
        });
        out.counts(&family_, rows.collect())?;
        let recalled = family("run_recalls", "Crowds that brought cores back between cycles.");
        out.counts(&recalled, one(*recalls))?;
        let missed = family("run_events_lost", "Events that the metrics do not contain.");
        out.counts(&missed, one(*lost))?;
        let slow = family("run_events_unread", "Events that live pages read too slowly for.");
        out.counts(&slow, one(*unread))?;
        let family = family("run_lateness", "How much later than planned cycles began.");
        let row = Histogram {
            labels: labels([]),
            sum: lateness.seconds(),
            count: *cycles,
            buckets: LATE.into_iter().zip(*late).collect(),
        };
        out.histograms(&family.in_unit(registry::Unit::Seconds), &[row])
    }
}
