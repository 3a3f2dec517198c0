//! Both sides of a transaction against each other, and hosts that cheat.

use std::sync::{Mutex, mpsc};

use ebb_initiator::Transaction;
use ebb_nvme::auth::{Explanation, Failure as Told, Head, Reply, Success2, id, kind};
use ebb_nvme::chap::Group;
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::super::association::Kind;
use super::super::{Config, Host};
use super::transaction::{Report, Transactions};
use super::work::Work;
use super::*;

const HOST: &str = "nqn.2026-01.org.example:host";
const SUBSYSTEM: &str = "nqn.2026-01.org.example:ebb";
/// Of 32 bytes of 1, 2, 3 and 4.
const SECRETS: [&str; 4] = [
    "DHHC-1:00:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQHMnzFi:",
    "DHHC-1:00:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgJvwX3v:",
    "DHHC-1:00:AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMOC0aU:",
    "DHHC-1:00:BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBARoepQu:",
];

fn key(number: usize) -> Key {
    Key::parse(SECRETS[number]).unwrap()
}

/// Keys that tests change.
struct Vault(Mutex<Result<Keys, String>>);

impl Secrets for Vault {
    fn requires(&self, host: &str) -> bool {
        host == HOST
    }
    fn keys(&self, _host: &str) -> Result<Keys, String> {
        self.0.lock().unwrap().clone()
    }
}

/// A target's side: the machine, its rules and its keys.
struct Target {
    machine: Transactions,
    rules: Rules,
    vault: Arc<Vault>,
}

impl Target {
    fn with(host: &[usize], controller: Option<usize>) -> Self {
        let host = host.iter().map(|number| key(*number)).collect();
        let keys = Keys { host, controller: controller.map(key) };
        let vault = Arc::new(Vault(Mutex::new(Ok(keys))));
        Self { machine: Transactions::default(), rules: Rules::new(vault.clone()), vault }
    }

    /// A message from the host, and all work for it.
    fn send(&mut self, message: &[u8]) {
        if let Some(work) = self.machine.send(message, &self.rules) {
            self.finish(work);
        }
    }

    fn finish(&mut self, work: Work) {
        self.machine.done(work.run(&*self.vault, HOST, SUBSYSTEM));
    }

    fn receive(&mut self) -> Vec<u8> {
        self.machine.receive().expect("nothing is being worked on")
    }

    /// The host is told why not, and that was that.
    fn refuses(&mut self, why: Explanation) {
        let message = self.receive();
        let told = Told::read_from_bytes(&message).unwrap();
        assert_eq!(told, Told::new(id::FAILURE1, told.head.transaction.get(), why));
        assert!(self.machine.is_over() && !self.machine.is_authenticated());
        assert!(matches!(self.machine.take_report(), Some(Report::Failed(_))));
        // Nothing helps any more.
        self.send(&negotiation(&secrets(0, None)));
        assert!(self.machine.is_over() && self.machine.take_report().is_none());
    }

    /// Up to the challenge, which is returned.
    fn challenges(&mut self, secrets: &ebb_initiator::Secrets) -> Vec<u8> {
        self.send(&negotiation(secrets));
        self.receive()
    }
}

/// A host's, of the null group, which is fast.
fn secrets(host: usize, controller: Option<usize>) -> ebb_initiator::Secrets {
    let groups = vec![Group::Null];
    ebb_initiator::Secrets { groups, ..ebb_initiator::Secrets::new(key(host), controller.map(key)) }
}

fn transaction(secrets: &ebb_initiator::Secrets) -> Transaction<'_> {
    Transaction::new(secrets, 7, HOST, SUBSYSTEM)
}

fn negotiation(secrets: &ebb_initiator::Secrets) -> Vec<u8> {
    transaction(secrets).negotiate()
}

/// A whole transaction, as the host sees it.
fn run(target: &mut Target, secrets: &ebb_initiator::Secrets) -> Result<(), Explanation> {
    let (mut host, was_in) = (transaction(secrets), target.machine.is_authenticated());
    target.send(&host.negotiate());
    let reply = host.reply(&target.receive())?;
    target.send(&reply);
    if let Some(success) = host.conclude(&target.receive())? {
        // Not before the host is content.
        assert_eq!(target.machine.is_authenticated(), was_in);
        target.send(&success);
    }
    Ok(())
}

fn gets_in(target: &mut Target, secrets: &ebb_initiator::Secrets) {
    run(target, secrets).unwrap();
    assert!(target.machine.is_authenticated() && !target.machine.is_over());
    assert_eq!(target.machine.take_report(), Some(Report::Succeeded));
}

fn failure(target: &mut Target) -> String {
    match target.machine.take_report() {
        Some(Report::Failed(why)) => why.into_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_has_the_key_gets_in_with_every_hash_function_and_group() {
    for hash in Hash::ALL {
        for group in Group::ALL {
            let controller = (hash as u8 != 2).then_some(1);
            let mut target = Target::with(&[0], controller);
            target.rules.groups = Group::ALL.to_vec();
            let (hashes, groups) = (vec![hash], vec![group]);
            let new = ebb_initiator::Secrets::new(key(0), controller.map(key));
            gets_in(&mut target, &ebb_initiator::Secrets { hashes, groups, ..new });
        }
    }
}

#[test]
fn the_target_chooses_by_its_own_preference_and_no_more_than_it_allows() {
    let mut target = Target::with(&[0], None);
    let offer = ebb_initiator::Secrets::new(key(0), None);
    let challenge = target.challenges(&offer);
    assert_eq!(challenge[8..10], [Hash::Sha512 as u8, Group::F2048 as u8]);
    for group in [Group::F6144, Group::F8192] {
        let mut target = Target::with(&[0], None);
        let offer = ebb_initiator::Secrets { groups: vec![group], ..offer.clone() };
        target.send(&negotiation(&offer));
        target.refuses(Explanation::Group);
    }
    let mut target = Target::with(&[0], None);
    target.rules.hashes = vec![Hash::Sha512];
    target.send(&negotiation(&ebb_initiator::Secrets { hashes: vec![Hash::Sha384], ..offer }));
    target.refuses(Explanation::Hash);
}

/// What Linux 6.12 and this target said to each other: with the same challenge it is said again,
/// byte for byte. Both sides had authenticated each other.
#[test]
fn a_transcript_of_the_kernel_s_is_followed() {
    let host = "nqn.2014-08.org.nvmexpress:uuid:6562622d-6775-4573-8400-000000000001";
    let bytes = |line: &str| -> Vec<u8> {
        let hex = line.rsplit(' ').next().unwrap();
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    };
    let lines: Vec<_> = include_str!("linux-6.12.txt").lines().map(bytes).collect();
    for (said, hash) in lines.chunks(5).zip([Hash::Sha256, Hash::Sha384, Hash::Sha512]) {
        let [negotiation, challenge, reply, success, thanks] = said else {
            panic!("five messages")
        };
        let mut target = Target::with(&[0], Some(1));
        (target.rules.hashes, target.rules.groups) = (vec![hash], vec![Group::Null]);
        assert!(target.machine.send(negotiation, &target.rules).is_some());
        let sequence = u32::from_le_bytes(challenge[12..16].try_into().unwrap());
        let prepared =
            work::Outcome::Prepared { challenge: challenge[16..].to_vec(), sequence, pair: None };
        target.machine.done(prepared);
        assert_eq!(target.receive(), *challenge);
        let verify = target.machine.send(reply, &target.rules).unwrap();
        let subsystem = "nqn.2026-11.org.example:transcript";
        target.machine.done(verify.run(&*target.vault, host, subsystem));
        assert_eq!(target.receive(), *success);
        target.send(thanks);
        assert!(target.machine.is_authenticated(), "{hash:?}");
    }
    assert_eq!(lines.len(), 15);
}

#[test]
fn who_has_not_the_key_does_not_get_in() {
    let mut wrong = Target::with(&[0], None);
    assert!(run(&mut wrong, &secrets(1, None)).is_err());
    assert!(failure(&mut wrong).contains("wrong") && wrong.machine.is_over());
    let mut missing = Target::with(&[0], None);
    *missing.vault.0.lock().unwrap() = Err("no such file".to_owned());
    assert!(run(&mut missing, &secrets(0, None)).is_err());
    assert_eq!(failure(&mut missing), "no such file");
    let mut none = Target::with(&[], None);
    assert!(run(&mut none, &secrets(0, None)).is_err());
    assert!(!none.machine.is_authenticated());
    // The key of the target is not one of the host.
    let mut other = Target::with(&[0], Some(1));
    assert!(run(&mut other, &secrets(1, None)).is_err());
}

#[test]
fn both_keys_count_while_they_are_exchanged_and_a_revoked_one_at_once_no_more() {
    let mut target = Target::with(&[0, 2], Some(1));
    gets_in(&mut target, &secrets(0, Some(1)));
    gets_in(&mut target, &secrets(2, Some(1)));
    let host = secrets(0, None);
    let mut late = transaction(&host);
    target.send(&late.negotiate());
    let reply = late.reply(&target.receive()).unwrap();
    *target.vault.0.lock().unwrap() = Ok(Keys { host: vec![key(2)], controller: None });
    target.send(&reply);
    target.refuses(Explanation::Failed);
}

#[test]
fn a_target_without_the_key_is_found_out() {
    let mut target = Target::with(&[0], Some(1));
    let host = secrets(0, Some(2));
    assert_eq!(run(&mut target, &host), Err(Explanation::Failed));
    assert!(!target.machine.is_authenticated());
    target.send(Told::new(id::FAILURE2, 7, Explanation::Failed).as_bytes());
    assert!(target.machine.is_over());
    assert!(failure(&mut target).contains("does not accept the target"));
    // One that has no key cannot pretend to have been asked nothing.
    let mut target = Target::with(&[0], None);
    let mut asking = transaction(&host);
    let challenge = target.challenges(&secrets(0, None));
    let reply = asking.reply(&challenge).unwrap();
    target.send(&reply);
    target.refuses(Explanation::Failed);
    let silent = [Head::chap(id::SUCCESS1, 7).as_bytes(), &[64], &[0; 73]].concat();
    assert_eq!(asking.conclude(&silent), Err(Explanation::Payload));
}

#[test]
fn nothing_comes_of_throwing_things_back() {
    // The host's own response in place of the target's.
    let mut target = Target::with(&[0], Some(1));
    let host = secrets(0, Some(1));
    let mut asking = transaction(&host);
    let challenge = target.challenges(&host);
    let reply = asking.reply(&challenge).unwrap();
    let thrown =
        [Head::chap(id::SUCCESS1, 7).as_bytes(), &[64, 0, 1, 0, 0, 0, 0, 0, 0, 0], &reply[16..80]]
            .concat();
    assert_eq!(asking.conclude(&thrown), Err(Explanation::Failed));
    // The target's challenge in place of the host's.
    let mut mirrored = reply.clone();
    mirrored[80..144].copy_from_slice(&challenge[16..80]);
    target.send(&mirrored);
    target.refuses(Explanation::Failed);
    // The same key both ways.
    let mut target = Target::with(&[0, 1], Some(1));
    assert!(run(&mut target, &secrets(0, Some(1))).is_err());
    assert!(failure(&mut target).contains("make another"));
}

#[test]
fn a_reply_is_good_for_one_challenge_of_one_transaction() {
    let host = secrets(0, None);
    let mut target = Target::with(&[0], None);
    let mut first = transaction(&host);
    let reply = first.reply(&target.challenges(&host)).unwrap();
    target.send(&reply);
    assert_eq!(first.conclude(&target.receive()), Ok(None));
    assert!(target.machine.is_authenticated());
    // Again in the same queue, to another challenge, and in another queue.
    target.challenges(&host);
    target.send(&reply);
    target.refuses(Explanation::Failed);
    let mut other = Target::with(&[0], None);
    other.challenges(&host);
    other.send(&reply);
    other.refuses(Explanation::Failed);
    // After it was taken, and before there was a challenge.
    let mut target = Target::with(&[0], None);
    run(&mut target, &host).unwrap();
    target.machine.take_report();
    target.send(&reply);
    target.refuses(Explanation::Message);
    // With the number of another transaction, and to another host.
    let mut target = Target::with(&[0], None);
    let challenge = target.challenges(&host);
    let mut spliced = transaction(&host).reply(&challenge).unwrap();
    spliced[4] ^= 1;
    target.send(&spliced);
    target.refuses(Explanation::Payload);
    let mut target = Target::with(&[0], None);
    let challenge = target.challenges(&host);
    let name = "nqn.2026-01.org.example:other";
    target.send(&Transaction::new(&host, 7, name, SUBSYSTEM).reply(&challenge).unwrap());
    target.refuses(Explanation::Failed);
}

#[test]
fn messages_have_an_order() {
    let host = secrets(0, Some(1));
    let success = Success2 { head: Head::chap(id::SUCCESS2, 7), reserved: [0; 10] };
    let negotiate = negotiation(&host);
    // Each state, and the messages that are wrong in it.
    let idle = || Target::with(&[0], Some(1));
    let challenged = || {
        let mut target = idle();
        let challenge = target.challenges(&host);
        let reply = transaction(&host).reply(&challenge).unwrap();
        (target, reply)
    };
    let confirming = || {
        let (mut target, reply) = challenged();
        target.send(&reply);
        target.receive();
        (target, reply)
    };
    let reply = challenged().1;
    for wrong in [reply.as_slice(), success.as_bytes()] {
        let mut target = idle();
        target.send(wrong);
        target.refuses(Explanation::Message);
    }
    for wrong in [negotiate.as_slice(), success.as_bytes()] {
        let (mut target, _) = challenged();
        target.send(wrong);
        target.refuses(Explanation::Message);
    }
    for wrong in [negotiate.as_slice(), reply.as_slice()] {
        let (mut target, _) = confirming();
        target.send(wrong);
        target.refuses(Explanation::Message);
    }
    // Nothing is there to be fetched.
    idle().refuses(Explanation::Message);
    challenged().0.refuses(Explanation::Message);
    confirming().0.refuses(Explanation::Message);
    // A message while work is under way, whose outcome then counts for nothing.
    let mut target = idle();
    let work = target.machine.send(&negotiate, &target.rules).unwrap();
    assert_eq!(target.machine.receive(), None);
    assert!(target.machine.send(&negotiate, &target.rules).is_none());
    target.finish(work);
    target.refuses(Explanation::Message);
}

#[test]
fn messages_have_the_length_that_they_say() {
    let offer = ebb_initiator::Secrets { groups: vec![Group::F2048], ..secrets(0, Some(1)) };
    let mut target = Target::with(&[0], Some(1));
    let good = transaction(&offer).reply(&target.challenges(&offer)).unwrap();
    let longer = [&good[..], &[0]].concat();
    let wrong = |at: usize, value: u8| {
        let mut message = good.clone();
        message[at] = value;
        message
    };
    let lengths = [6, 15, 16, 80, good.len() - 1].map(|length| good[..length].to_vec());
    let fields = [wrong(6, 32), wrong(6, 0), wrong(8, 2), wrong(10, 1), wrong(11, 0)];
    let mut no_sequence = good.clone();
    no_sequence[12..16].fill(0);
    let none = Reply { dh_length: 0.into(), ..Reply::read_from_prefix(&good).unwrap().0 };
    let no_value = [none.as_bytes(), &good[16..144]].concat();
    let mut zero = good.clone();
    zero[144..].fill(0);
    let all = lengths.into_iter().chain(fields).chain([longer, no_sequence, no_value, zero]);
    for message in all {
        let mut target = Target::with(&[0], Some(1));
        target.challenges(&offer);
        target.send(&message);
        target.refuses(Explanation::Payload);
    }
}

#[test]
fn negotiations_are_refused_with_the_reason() {
    let good = negotiation(&secrets(0, None));
    let wrong = |at: usize, value: u8| {
        let mut message = good.clone();
        message[at] = value;
        message
    };
    let many = [&good[..], &[0; 64]].concat();
    for (message, why) in [
        (Vec::new(), Explanation::Payload),
        (good[..5].to_vec(), Explanation::Payload),
        (good[..7].to_vec(), Explanation::Payload),
        (good[..71].to_vec(), Explanation::Payload),
        (many, Explanation::Payload),
        (wrong(6, 1), Explanation::SecureChannel),
        (wrong(7, 0), Explanation::Payload),
        (good[..8].iter().copied().chain([0; 64]).collect(), Explanation::Protocol),
        (wrong(10, 31), Explanation::Payload), // HALEN
        (wrong(11, 31), Explanation::Payload), // DHLEN
        (wrong(10, 0), Explanation::Hash),
        (wrong(11, 0), Explanation::Group),
        (wrong(42, 9), Explanation::Group),
    ] {
        let mut target = Target::with(&[0], None);
        target.send(&message);
        target.refuses(why);
    }
    let unknown = {
        let mut message = good.clone();
        message[12..15].copy_from_slice(&[0, 4, 255]);
        message
    };
    let mut target = Target::with(&[0], None);
    target.send(&unknown);
    target.refuses(Explanation::Hash);
}

#[test]
fn a_host_may_authenticate_itself_again_at_any_time() {
    let mut target = Target::with(&[0], Some(1));
    gets_in(&mut target, &secrets(0, None));
    let host = secrets(0, Some(1));
    let mut again = transaction(&host);
    target.send(&again.negotiate());
    assert!(target.machine.is_authenticated(), "until it is found not to be");
    let reply = again.reply(&target.receive()).unwrap();
    target.send(&reply);
    let success = again.conclude(&target.receive()).unwrap().unwrap();
    target.send(&success);
    assert_eq!(target.machine.take_report(), Some(Report::Succeeded));
    assert!(run(&mut target, &secrets(2, None)).is_err());
    assert!(!target.machine.is_authenticated() && target.machine.is_over());
}

#[test]
fn who_leaves_before_the_end_has_failed() {
    let mut target = Target::with(&[0], None);
    target.machine.abandon();
    assert_eq!(target.machine.take_report(), None, "who did not begin has not");
    let work = target.machine.send(&negotiation(&secrets(0, None)), &target.rules).unwrap();
    target.machine.abandon();
    assert_eq!(target.machine.take_report(), None, "who waited for the target has not");
    target.finish(work);
    target.receive();
    target.machine.abandon();
    assert!(failure(&mut target).contains("left"));
}

/// One queue after another of a host, on a clock of its own.
struct Queues {
    subsystem: Arc<Subsystem>,
    wake: Wake,
    woken: mpsc::Receiver<()>,
}

impl Queues {
    fn new() -> Self {
        let authentication = Some(Target::with(&[0], None).rules);
        let config = Config { authentication, ..Config::new(SUBSYSTEM, Vec::new()) };
        let (wake, woken) = mpsc::channel();
        let wake = Arc::new(move || wake.send(()).unwrap());
        Self { subsystem: Subsystem::new(config).unwrap(), wake, woken }
    }

    fn sends(&self, message: &[u8], now: Nanos) -> Authentication {
        let host = Host::new([7; 16], HOST.to_owned());
        let association = Association::new(1, Kind::Io, host, 1, Arc::default(), now);
        let association = Arc::new(association);
        let mut queue = Authentication::new(self.subsystem.clone(), association, None, now);
        queue.send(message, now, &self.wake);
        queue
    }
}

/// Somebody at the address of the host, who has no key and as many connections as he likes.
#[test]
fn who_has_the_key_waits_once_however_often_others_fail_in_its_name() {
    let (queues, pace) = (Queues::new(), Nanos::from_secs(2));
    let secrets = secrets(0, None);
    let mut now = Nanos::from_secs(100);
    for _ in 0..3 {
        let mut failing: Vec<_> = (0..100).map(|_| queues.sends(&[0xff; 8], now)).collect();
        for queue in &mut failing[3..] {
            assert_eq!(queue.receive(now), None, "those wait for their answers as well");
        }
        let mut host = transaction(&secrets);
        let mut queue = queues.sends(&host.negotiate(), now);
        queues.woken.recv().unwrap();
        assert_eq!(queue.receive(now), None);
        now += pace;
        assert!(failing[99].receive(now).is_some());
        let reply = host.reply(&queue.receive(now).unwrap()).unwrap();
        // Of those whom nobody told anything, none has failed.
        let failed = queues.subsystem.authentications().unwrap().failed;
        let leaves = queues.sends(&host.negotiate(), now);
        queues.woken.recv().unwrap();
        drop(leaves);
        assert_eq!(queues.subsystem.authentications().unwrap().failed, failed);
        queue.send(&reply, now, &queues.wake);
        queues.woken.recv().unwrap();
        assert_eq!(host.conclude(&queue.receive(now).unwrap()), Ok(None));
        assert!(queue.is_done());
    }
    // A wrong proof is told of no sooner than a right one.
    (0..3).for_each(|_| drop(queues.sends(&[0xff; 8], now)));
    let mut queue = queues.sends(&negotiation(&secrets), now);
    queues.woken.recv().unwrap();
    assert_eq!(queue.receive(now + pace - Nanos(1)), None);
    assert!(queue.receive(now + pace).is_some());
}

/// What a host without keys may send.
fn messages() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let head = (prop_oneof![Just(kind::COMMON), Just(kind::CHAP)], 0..6_u8, any::<bool>());
    let message = (head, prop::collection::vec(any::<u8>(), 0..200)).prop_map(|(head, rest)| {
        let (kind, message, ours) = head;
        let message = if message == 5 { id::FAILURE2 } else { message };
        let head = Head { kind, ..Head::chap(message, if ours { 7 } else { 8 }) };
        [head.as_bytes(), &rest].concat()
    });
    prop::collection::vec(message, 0..8)
}

proptest! {
    #[test]
    fn nobody_gets_in_by_chance(
        messages in messages(),
        fetches: u8,
        begins: bool,
    ) {
        let mut target = Target::with(&[0], Some(1));
        if begins {
            target.challenges(&secrets(0, None));
        }
        for (at, message) in messages.iter().enumerate() {
            target.send(message);
            if fetches >> at & 1 == 1 {
                let message = target.receive();
                prop_assert!(message.len() <= 1200);
            }
            prop_assert!(!target.machine.is_authenticated());
        }
    }
}
