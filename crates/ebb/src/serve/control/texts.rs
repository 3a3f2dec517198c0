//! Options that say what `ebb ctl` sets: limits of hosts, states of paths.

use std::net::SocketAddr;

use anyhow::Result;
use ebb_policy::units::Bytes;
use ebb_target::controller::{Allowed, AnaState, LEAST_BYTES_PER_SECOND, LEAST_IOPS};

use ebb_cli::usage;

/// A host and what it may do: `NQN,iops=N,bytes-per-second=SIZE`.
pub fn limit(text: &str) -> Result<(String, Allowed)> {
    let wrong = |why: String| usage(format!("--limit {text}: {why}"));
    let (mut host, mut allowed) = (text, Allowed::default());
    // From its end: a name may have commas of its own.
    while let Some((before, last)) = host.rsplit_once(',') {
        if let Some(number) = last.strip_prefix("iops=") {
            let number = number.parse().map_err(|_| wrong(format!("'{number}' is no number")))?;
            allowed.iops = Some(number);
        } else if let Some(size) = last.strip_prefix("bytes-per-second=") {
            let size: Bytes = size.parse().map_err(|error| wrong(format!("{error}")))?;
            allowed.bytes_per_second = Some(size.0);
        } else {
            break;
        }
        host = before;
    }
    check(allowed).map_err(|error| wrong(error.to_string()))?;
    Ok((host.to_owned(), allowed))
}

/// Refuses limits that keep commands longer than hosts wait for them.
pub fn check(allowed: Allowed) -> Result<()> {
    let Allowed { iops, bytes_per_second } = allowed;
    if allowed == Allowed::default() {
        return Err(usage("give iops, bytes per second, or both"));
    }
    if iops.is_some_and(|iops| !(LEAST_IOPS..=1_000_000_000).contains(&iops)) {
        return Err(usage(format!("iops must be {LEAST_IOPS} to 1,000,000,000")));
    }
    if bytes_per_second.is_some_and(|rate| !(LEAST_BYTES_PER_SECOND..=1 << 40).contains(&rate)) {
        let least = Bytes(LEAST_BYTES_PER_SECOND);
        return Err(usage(format!("bytes per second must be {least} to 1 TiB")));
    }
    Ok(())
}

/// The text of a limit.
pub fn of_limit(host: &str, allowed: Allowed) -> String {
    let iops = allowed.iops.map(|iops| format!(",iops={iops}")).unwrap_or_default();
    let rate = allowed.bytes_per_second.map(Bytes);
    let rate = rate.map(|rate| format!(",bytes-per-second={rate}")).unwrap_or_default();
    format!("{host}{iops}{rate}")
}

/// The state of an address's paths to all namespaces or one: `ADDRESS:PORT[/NAMESPACE]=STATE`.
pub fn path(text: &str) -> Result<(SocketAddr, Option<u32>, AnaState)> {
    let wrong = || usage(format!("--ana {text}: write ADDRESS:PORT[/NAMESPACE]=STATE"));
    let (place, name) = text.rsplit_once('=').ok_or_else(wrong)?;
    let (address, group) = match place.split_once('/') {
        Some((address, group)) => (address, Some(group.parse().map_err(|_| wrong())?)),
        None => (place, None),
    };
    Ok((address.parse().map_err(|_| wrong())?, group, state(name)?))
}

/// A state by its name.
pub fn state(name: &str) -> Result<AnaState> {
    let known = AnaState::ALL.into_iter().find(|state| state.name() == name);
    known.ok_or_else(|| {
        let names = AnaState::ALL.map(AnaState::name).join(", ");
        usage(format!("there is no ANA state '{name}'; there are {names}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_they_are_written() {
        let host = "nqn.2026-01.org.example:a,b";
        let both = Allowed { iops: Some(5000), bytes_per_second: Some(100 << 20) };
        for allowed in [
            both,
            Allowed { iops: Some(10), bytes_per_second: None },
            Allowed { iops: None, bytes_per_second: Some(65_537) },
        ] {
            assert_eq!(limit(&of_limit(host, allowed)).unwrap(), (host.to_owned(), allowed));
        }
        for (text, word) in [
            ("nqn.x", "give iops"),
            ("nqn.x,iops=9", "10 to"),
            ("nqn.x,iops=x", "no number"),
            ("nqn.x,bytes-per-second=1KiB", "64 KiB to"),
        ] {
            let error = limit(text).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn paths_are_told_by_address_and_namespace() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let one = path("[::1]:4420/3=non-optimized").unwrap();
        assert_eq!(one, (at("[::1]:4420"), Some(3), AnaState::NonOptimized));
        assert_eq!(path("10.0.0.1:1=change").unwrap(), (at("10.0.0.1:1"), None, AnaState::Change));
        for wrong in ["10.0.0.1:1", "10.0.0.1=change", "10.0.0.1:1/x=change", "10.0.0.1:1=x"] {
            assert!(path(wrong).is_err(), "{wrong}");
        }
    }
}
