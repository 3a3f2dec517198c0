//! Any messages of a host that has no key, and of a target that has none: neither is taken for who
//! it says it is, nothing panics, and no message is longer than one may be.
//!
//! The input is a sequence of steps: a byte that says what, and a message's length and bytes.

#![no_main]

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ebb_initiator::Transaction;
use ebb_nvme::Sqe;
use ebb_nvme::auth::{MOST, check_fields, is_authentication};
use ebb_nvme::chap::{Group, Key};
use ebb_nvme::command::{FABRICS, fabrics};
use ebb_policy::units::Nanos;
use ebb_target::controller::{Authentication, Config, Keys, Rules, Secrets, Subsystem, Wake};
use libfuzzer_sys::fuzz_target;
use zerocopy::FromBytes;

const NQN: &str = "nqn.2026-01.org.example:ebb";
const HOST: &str = "nqn.2026-01.org.example:host";
const SECRET: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";
const OTHER: &str = "DHHC-1:01:vYcm5QemILkz5zSIeZidb4nPGcxongu2l/OaWMRgM9iIk/2A:";

fn key(text: &str) -> Key {
    Key::parse(text).expect("a secret")
}

struct Vault;

impl Secrets for Vault {
    fn requires(&self, _host: &str) -> bool {
        true
    }
    fn keys(&self, _host: &str) -> Result<Keys, String> {
        Ok(Keys { host: vec![key(SECRET)], controller: None })
    }
}

fn subsystem() -> &'static Arc<Subsystem> {
    static SUBSYSTEM: OnceLock<Arc<Subsystem>> = OnceLock::new();
    SUBSYSTEM.get_or_init(|| {
        let groups = vec![Group::Null];
        let authentication = Some(Rules { groups, ..Rules::new(Arc::new(Vault)) });
        let config = Config { authentication, ..Config::new(NQN, Vec::new()) };
        Subsystem::new(config).expect("a subsystem")
    })
}

/// Of an admin queue just connected, long after the one before.
fn authentication() -> (Box<Authentication>, Nanos) {
    static HOURS: AtomicU64 = AtomicU64::new(1);
    let now = Nanos::from_secs(3600 * HOURS.fetch_add(1, Ordering::Relaxed));
    let mut sqe = Sqe::new(FABRICS, 1);
    sqe.nsid = u32::from(fabrics::CONNECT).into();
    sqe.set_cdw(11, 31);
    let mut data = [0; 1024];
    data[16..18].fill(0xff);
    data[256..256 + NQN.len()].copy_from_slice(NQN.as_bytes());
    data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
    let connected = subsystem().connect(&sqe, &data, now).expect("a queue");
    let mut authentication = connected.authentication.expect("it is required");
    authentication.came_from(Ipv4Addr::LOCALHOST.into());
    (authentication, now)
}

/// What the target says, once it has said it.
fn fetch(target: &mut Authentication, now: Nanos) -> Vec<u8> {
    loop {
        if let Some(message) = target.receive(now) {
            assert!(message.len() <= MOST as usize);
            return message;
        }
        std::thread::yield_now();
    }
}

fuzz_target!(|input: &[u8]| {
    let _ = std::str::from_utf8(input).map(Key::parse);
    if let Ok((sqe, _)) = Sqe::read_from_prefix(input) {
        assert!(!is_authentication(&sqe) || check_fields(&sqe).is_err() || sqe.cdw(11) <= MOST);
    }
    let secrets = ebb_initiator::Secrets::new(key(OTHER), Some(key(SECRET)));
    let mut host = Transaction::new(&secrets, 7, HOST, NQN);
    let (mut target, now) = authentication();
    let wake: Wake = Arc::new(|| ());
    let mut input = input;
    let mut said = Vec::new();
    while let Some((step, rest)) = input.split_first() {
        let (length, rest) = rest.split_first().unwrap_or((&0, rest));
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        input = rest;
        match step % 6 {
            0 => target.send(&host.negotiate(), now, &wake),
            1 => target.send(bytes, now, &wake),
            2 => said = fetch(&mut target, now),
            // The reply that the host would give, and one with some bytes changed.
            3 => {
                if let Ok(mut reply) = host.reply(&said) {
                    let changed = reply.iter_mut().zip(bytes);
                    changed.for_each(|(byte, change)| *byte ^= change);
                    target.send(&reply, now, &wake);
                }
            }
            4 => drop(host.reply(bytes)),
            _ => assert!(!matches!(host.conclude(bytes), Ok(Some(_))), "a target without a key"),
        }
        assert!(!target.is_done(), "a host without a key");
    }
});
