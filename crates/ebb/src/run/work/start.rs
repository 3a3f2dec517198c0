//! What a run begins with: the parts, and taking them in hand.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use ebb_cli::{out, usage};
use ebb_host::{Host, Impossible, Machine, State};
use ebb_policy::Control;
use ebb_record::recording;
use ebb_twin::Profile;
use rustix::fs::{FileType, fstat};

use crate::run::config::Config;
use crate::run::estimate::{Governed, governed};
use crate::run::events::Begun;
use crate::run::latency::Latency;
use crate::run::power;
use crate::run::remarks::Remarks;

/// What steers the frequency of each group.
fn all_governed(host: &Host) -> Vec<Option<recording::Governed>> {
    let of = |group| {
        let Governed { governor, driver, lowest } = governed(host, group)?;
        let [governor, driver] = [governor, driver].map(str::to_owned);
        Some(recording::Governed { governor, driver, lowest })
    };
    (0..host.topology().groups.len()).map(of).collect()
}

/// What it begins with.
pub(super) fn begun(host: &Host, config: &Config, remarks: Remarks) -> Result<Begun> {
    let latency = Latency::of(config, host);
    Ok(Begun {
        topology: host.topology().clone(),
        profile: config.profile.clone(),
        latency: latency.name(),
        missing: remarks.all,
        lacks: remarks.lacks,
        config: toml::to_string(config)?,
        governed: all_governed(host),
        unseen: latency.unseen(),
        ..Begun::default()
    })
}

/// `machine` as `owned` controls see it, with what it draws by `profile`.
pub(super) fn known(
    machine: Machine,
    config: &Config,
    owned: &[Control],
    profile: &Profile,
) -> Result<Host> {
    let impossible = |error: Impossible| usage(format!("{}: {error}", error.key()));
    let mut host = Host::new(machine, &config.stated()?, owned).map_err(impossible)?;
    if let Some(power) = power::model(profile, host.topology()) {
        host.set_power(power, profile.board.meter_lag);
    }
    Ok(host)
}

/// Takes all that is steered in hand; what was found of it is in `state`.
pub(super) fn act(
    host: &mut Host,
    config: &Config,
    owned: &[Control],
    state: &State,
    remarks: &mut Remarks,
) -> Result<()> {
    let holds = config.holds().places(host.machine());
    let holds = holds.map_err(|wrong| usage(format!("hold.{wrong}")))?;
    let notices = host.act(owned, holds, |control| config.leave.of(control), config.contest, state);
    for notice in notices.context("nothing was changed")? {
        remarks.say(format!("{}: {}", notice.place, notice.text));
    }
    host.contact(state).iter().for_each(|t| out::note(format_args!("first contact: {t}")));
    Ok(())
}

/// Standard output, where it is a pipe.
pub(super) fn pipe() -> Option<OwnedFd> {
    let output = std::io::stdout().as_fd().try_clone_to_owned().ok()?;
    let kind = FileType::from_raw_mode(fstat(&output).ok()?.st_mode);
    (kind == FileType::Fifo).then_some(output)
}
