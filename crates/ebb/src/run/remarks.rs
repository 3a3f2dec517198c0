//! What an operator should know of a machine before a run begins.

use std::collections::BTreeMap;

use anyhow::Result;
use ebb_cli::{out, usage};
use ebb_host::{Capability, Fans, Fit, Host, Report};
use ebb_policy::registry::{self, Settings};
use ebb_policy::{Control, GroupSpec, Names};

use super::config::Config;
use super::schedule::InEffect;

/// What an operator should know from the start: it is said, and shown as long as it holds.
#[derive(Default)]
pub struct Remarks {
    /// All of them.
    pub all: Vec<String>,
    /// Why signals are not there and what to do, by their names.
    pub lacks: Vec<(&'static str, String)>,
}

impl Remarks {
    /// What `host` has for what `config` wants, by which `settings` were made.
    ///
    /// # Errors
    /// Where it is to act and can do nothing.
    pub fn of(
        host: &Host,
        config: &Config,
        held: InEffect,
        settings: &Settings,
        acts: bool,
    ) -> Result<Self> {
        let (mut remarks, owned) = (Self::default(), registry::owned(&config.policy)?);
        let is_budgeted = held.ssd_budget.is_some() && owned.contains(&Control::PowerState);
        say_uncapped(&mut remarks, host, is_budgeted, config.apply)?;
        say_absent(&mut remarks, host, config);
        host.remarks(&owned).into_iter().for_each(|text| remarks.say(text));
        let idle = registry::idle(&config.policy, host.topology(), settings)?;
        for (part, reason) in &idle {
            remarks.say(format!("{part} sets nothing here: {reason}"));
        }
        fits(&mut remarks, host, config, &idle)?;
        rights(&mut remarks, host, acts);
        Ok(remarks)
    }

    /// Says one more.
    pub fn say(&mut self, text: String) {
        out::note(&text);
        self.all.push(text);
    }
}

/// Says what the policies cannot do without and this machine does not have, and what they go
/// without.
///
/// # Errors
/// Where none of them could do anything and it is to act.
fn fits(remarks: &mut Remarks, host: &Host, config: &Config, idle: &[(&str, &str)]) -> Result<()> {
    let report = Report::new(host.machine(), &config.stated()?);
    remarks.lacks = lacks(&report);
    let parts = registry::names(&config.policy);
    let fits: Vec<_> =
        parts.filter_map(|part| report.policies.iter().find(|fit| fit.policy == part)).collect();
    for fit in &fits {
        let policy = fit.policy;
        if !fit.lacks.is_empty() {
            let missing = fit.lacks.join(", no ");
            remarks.say(format!("{policy}: this machine has no {missing}; ebb probe says why"));
        } else if !fit.alone.is_empty() {
            let alone = fit.alone.join(" and ");
            remarks.say(format!("{policy} leaves {alone} alone here; ebb probe says why"));
        }
    }
    let is_idle = |policy: &str| idle.iter().any(|(part, _)| *part == policy);
    let asks = |fit: &Fit| -> Result<bool> {
        let mut its =
            config.policy.split('+').filter(|part| registry::names(part).eq([fit.policy]));
        let asked = registry::asked(its.next().unwrap_or(fit.policy))?;
        let has = |control: &Control| !fit.without.contains(&control.row().name);
        Ok(asked.is_empty() || asked.iter().any(has))
    };
    let mut can = false;
    for fit in &fits {
        can |= fit.lacks.is_empty() && !is_idle(fit.policy) && asks(fit)?;
    }
    if !can {
        let policy = &config.policy;
        let nothing = format!("{policy} can do nothing here; ebb probe says what could");
        if config.apply {
            return Err(usage(nothing));
        }
        remarks.say(nothing);
    }
    Ok(())
}

/// Why signals are not there: each reason of a signal once, with the parts that it is of.
fn lacks(report: &Report) -> Vec<(&'static str, String)> {
    let mut reasons: BTreeMap<(&'static str, &str), Vec<&str>> = BTreeMap::new();
    for found in &report.signals {
        if let Some(why) = &found.missing {
            reasons.entry((found.name, why)).or_default().extend(found.of.as_deref());
        }
    }
    let text = |((name, why), parts): ((&'static str, &str), Vec<&str>)| {
        let text = match &parts[..] {
            [] => why.to_owned(),
            [one] => format!("{one}: {why}"),
            [one, others @ ..] => format!("{one} and {} more: {why}", others.len()),
        };
        (name, text)
    };
    reasons.into_iter().map(text).collect()
}

/// Says which rights this process lacks to act, or to see, on the machine.
fn rights(remarks: &mut Remarks, host: &Host, acts: bool) {
    let nvme = host.machine().drives.iter().any(|drive| drive.controller.is_some());
    let is_needed = |one: &Capability| match one {
        Capability::SysAdmin => nvme,
        _ => acts,
    };
    for one in Capability::ALL.into_iter().filter(|one| is_needed(one) && !one.is_there()) {
        let (what, remedy) = (one.what_for(), one.remedy());
        remarks.say(format!("no {what}: {remedy}"));
    }
}

/// Says which drives no state caps, and what they count for in a budget.
///
/// # Errors
/// Where nobody knows that of one, and it is to act.
fn say_uncapped(remarks: &mut Remarks, host: &Host, is_budgeted: bool, apply: bool) -> Result<()> {
    for parts in host.layout().drives.iter().filter(|_| is_budgeted) {
        let (drive, model) = (&parts.drive, &parts.drive.model);
        let id = drive.id.as_ref().unwrap_or(&drive.name);
        if let Some((most, why)) = parts.most() {
            let is_absurd = parts.identity.iter().any(|identity| identity.absurd.is_some());
            let what = match parts.is_silent() {
                true => "does not say what it is",
                false if is_absurd => "has no power states that can be believed",
                false => "has no power states",
            };
            remarks.say(format!("{id} {what}: it counts in ssd_budget with {most}, {why}"));
        } else if parts.is_unknown() {
            let text = format!(
                "{} ({id}) is a volume of a RAID controller, and what its disks draw is not \
                 known: state the most under [machine.drive_watts], such as \"{model}\" = \"96 W\"",
                drive.name
            );
            if apply {
                return Err(usage(text));
            }
            remarks.say(text + "; until then it does not count in ssd_budget");
        }
    }
    Ok(())
}

/// Says of which drives the configuration states a figure that are not here.
fn say_absent(remarks: &mut Remarks, host: &Host, config: &Config) {
    let drives = || host.layout().drives.iter().map(|parts| &parts.drive);
    let is_here = |name: &String| {
        drives().any(|drive| drive.model == *name || drive.id.as_ref() == Some(name))
    };
    for name in config.machine.drive_watts.keys().filter(|name| !is_here(name)) {
        let text = "no drive here has this model or identity; ebb probe lists them";
        remarks.say(format!("machine.drive_watts: \"{name}\": {text}"));
    }
}

/// What there is, for people: as `ebb probe` counts it, whatever the policy steers of it.
pub fn parts(host: &Host, config: &Config) -> String {
    let (topology, machine) = (host.topology(), host.machine());
    let capped = host.layout().drives.iter().filter(|parts| {
        let states = parts.identity.iter().flat_map(|identity| &identity.states);
        states.filter(|state| state.operational).count() > 1
    });
    let group = |(name, spec): (&String, &GroupSpec)| format!("{} cores of {name}", spec.cores);
    let names = Names::new(topology);
    let groups: Vec<_> = match &topology.groups[..] {
        [all] => vec![format!("{} cores", all.cores)],
        several => names.groups().iter().zip(several).map(group).collect(),
    };
    format!(
        "found {}; frequencies {}, drives {} ({} with power caps), fans {}, sockets {} ({} with \
         temperatures)",
        groups.join(", "),
        topology.known_frequencies().len(),
        topology.drives.len(),
        capped.count(),
        Fans::found(machine, &config.machine.stated_fans()).fans.len(),
        machine.cpus.sockets,
        machine.socket_sensors().len(),
    )
}
