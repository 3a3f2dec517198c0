//! A server that somebody wrote by hand: a shipped profile with some of its numbers replaced by
//! others. It is refused or can be simulated, and the simulation ends.
//!
//! The first byte is the profile, the second the policy; then three bytes for each change: the
//! number (two bytes) and what becomes of it.

#![no_main]

use ebb_policy::registry::{Settings, make};
use ebb_policy::units::Nanos;
use ebb_trace::generate::{BuildContext, by_name};
use ebb_twin::{Profile, Run, Unobserved, run};
use libfuzzer_sys::fuzz_target;

const VALUES: [&str; 16] = [
    "0",
    "-1",
    "1",
    "2",
    "0.5",
    "0.000001",
    "1e-300",
    "1000",
    "999999999",
    "1e18",
    "1e300",
    "inf",
    "-inf",
    "nan",
    "18446744073709551616",
    "",
];
const POLICIES: [&str; 4] = ["native", "dlb", "eadc-plus", "pacer"];

/// Where the numbers of `text` are that are not in comments.
fn numbers(text: &str) -> Vec<std::ops::Range<usize>> {
    let (bytes, mut found, mut comment) = (text.as_bytes(), Vec::new(), false);
    let part = |at: usize| bytes[at].is_ascii_digit() || b".e-_".contains(&bytes[at]);
    let mut at = 0;
    while at < bytes.len() {
        comment = bytes[at] == b'#' || (comment && bytes[at] != b'\n');
        let word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        if comment || word || !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let end = (at..bytes.len()).find(|end| !part(*end)).unwrap_or(bytes.len());
        found.push(at..end);
        at = end;
    }
    found
}

fuzz_target!(|input: &[u8]| {
    let [profile, policy, changes @ ..] = input else { return };
    let names: Vec<_> = Profile::names().collect();
    let name = names[usize::from(*profile) % names.len()];
    let mut text = Profile::shipped_text(name).unwrap_or_default().to_owned();
    for change in changes.chunks_exact(3).take(8) {
        let places = numbers(&text);
        let place = u16::from_le_bytes([change[0], change[1]]);
        let place = places[usize::from(place) % places.len()].clone();
        text.replace_range(place, VALUES[usize::from(change[2]) % VALUES.len()]);
    }
    let Ok(profile) = Profile::parse(&text, name) else { return };
    let topology = profile.topology();
    let policy = POLICIES[usize::from(*policy) % POLICIES.len()];
    let Ok(policy) = make(policy, &topology, &Settings::default()) else { return };
    let Ok(spec) = by_name("poisson") else { return };
    let (devices, bytes) = profile.volumes();
    let context = BuildContext { devices, capacity_bytes: bytes.0, seed: 1 };
    let Ok(workload) = spec.with_maximum(10_000.0).build(&context) else { return };
    let _ = run(
        Run { duration: Some(Nanos::from_millis(1200)), ..Run::of(&profile, policy, workload, 1) },
        &mut Unobserved,
    );
});
