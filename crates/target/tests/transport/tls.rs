//! Hosts that come with TLS, and some that do not as they should.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebb_initiator::{Controller, Error, Op, Queue, Request, Target, Tls};
use ebb_nvme::pdu::{CapsuleResp, Digests};
use ebb_nvme::tls::{Derivation, Key, Psk, Security, Session, Stream, Version};
use ebb_policy::units::Nanos;
use ebb_target::controller::{Tally, TlsKeys};
use ebb_target::transport::Limits;
use zerocopy::FromBytes;

use super::peer::{HOST, Host, Peer, connect_as, initialize};
use super::server::{NQN, Server};

const OTHER: &str = "nqn.2026-11.org.example:other";
/// Of 32 bytes of 1, 2 and 3, and of 48 of 4 (Python: `base64.b64encode(key +
/// zlib.crc32(key).to_bytes(4, "little"))`).
const KEYS: [&str; 4] = [
    "NVMeTLSkey-1:01:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQHMnzFi:",
    "NVMeTLSkey-1:01:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgJvwX3v:",
    "NVMeTLSkey-1:00:AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMOC0aU:",
    "NVMeTLSkey-1:02:BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEvGCx5w==:",
];

fn key(number: usize) -> Key {
    Key::parse(KEYS[number]).unwrap()
}

/// The keys of [`HOST`], as many as are told; [`OTHER`] has 3.
struct Vault(Mutex<Vec<usize>>);

impl TlsKeys for Vault {
    fn has(&self, host: &str) -> bool {
        [HOST, OTHER].contains(&host)
    }

    fn keys(&self, host: &str) -> Result<Vec<Key>, String> {
        let own = self.0.lock().unwrap();
        match own.is_empty() {
            true => Err("its file is gone".to_owned()),
            false if host == HOST => Ok(own.iter().map(|number| key(*number)).collect()),
            false => Ok(vec![key(3)]),
        }
    }
}

fn server_with(security: Security, limits: Limits) -> (Server, Arc<Vault>) {
    let vault = Arc::new(Vault(Mutex::new(vec![0, 2])));
    (Server::secured(vault.clone(), security, Limits { secure: true, ..limits }), vault)
}

fn server(security: Security) -> (Server, Arc<Vault>) {
    server_with(security, Limits::default())
}

/// A host with this key.
fn target(server: &Server, host: &str, own: usize) -> Target {
    let host = ebb_initiator::Host { nqn: host.to_owned(), id: [7; 16] };
    let timeout = Duration::from_secs(60);
    let tls = Some(Tls::new(key(own)));
    Target { host, tls, timeout, ..Target::new(server.address, NQN) }
}

fn connects(target: &Target) -> Controller {
    Controller::connect(target).unwrap()
}

fn stays_out(target: &Target) {
    let error = Controller::connect(target).expect_err("it must not get in");
    assert!(matches!(error, Error::Insecure(_)), "{error}");
}

/// Why the last failure.
fn why(server: &Server) -> String {
    let failures = server.subsystem.failures_since(0);
    failures.last().map(|one| format!("{}: {}", one.host, one.why)).unwrap_or_default()
}

fn does(queue: &mut Queue, op: Op, lba: u64, buffer: Vec<u8>) -> Vec<u8> {
    let (blocks, from) = (buffer.len() as u32 / 512, Instant::now());
    queue.submit(Request { op, nsid: 1, lba, blocks, buffer, tag: 5, from }).unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        queue.poll(&mut done).unwrap();
        queue.wait(Duration::from_millis(20)).unwrap();
        assert!(from.elapsed() < Duration::from_secs(60), "a command hangs");
    }
    let done = done.pop().unwrap();
    assert!(done.status.is_success(), "{:?}", done.status);
    done.buffer
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 512 + seed) as u8).collect()
}

/// What is written is read, from a block to several records, many at once.
fn works(queue: &mut Queue) {
    for blocks in [1, 8, 31, 32, 33, 256] {
        let data = pattern(blocks * 512, blocks);
        does(queue, Op::Write { durable: false }, 16, data.clone());
        assert!(does(queue, Op::Read, 16, vec![0; data.len()]) == data, "{blocks} blocks");
    }
    let mut done = Vec::new();
    for tag in 0..8 {
        let (buffer, from) = (vec![0; 128 << 10], Instant::now());
        let request = Request { op: Op::Read, nsid: 1, lba: 16, blocks: 256, buffer, tag, from };
        queue.submit(request).unwrap();
    }
    while done.len() < 8 {
        queue.poll(&mut done).unwrap();
        queue.wait(Duration::from_millis(20)).unwrap();
    }
    assert!(done.iter().all(|one| one.buffer == pattern(256 * 512, 256)));
}

#[test]
fn hosts_with_their_keys_do_their_io_over_tls() {
    let (server, _) = server(Security::Required);
    for (host, own, digests) in [(HOST, 0, 0), (HOST, 2, 3), (OTHER, 3, 0), (OTHER, 3, 3)] {
        let target = Target { digests: Digests::from_byte(digests), ..target(&server, host, own) };
        let mut admin = connects(&target);
        let mut queue = admin.queue(1, 16).unwrap();
        works(&mut queue);
        admin.keep_alive().unwrap();
        admin.namespaces().unwrap();
    }
    assert_eq!(server.subsystem.authentications(), Some(Tally { succeeded: 8, failed: 0 }));
    // The discovery service has the same keys under its own name.
    let found = ebb_initiator::discover(&target(&server, HOST, 0)).unwrap();
    assert!(found.iter().any(|one| one.nqn == NQN), "{found:?}");
}

#[test]
fn every_identity_and_both_derivations_are_taken() {
    use {Derivation as D, Version as V};
    let (server, _) = server(Security::Required);
    for version in [V::Zero, V::One] {
        for derivation in [D::Rfc8446, D::Compat] {
            for own in [0, 2] {
                let tls = Some(Tls { key: key(own), version, derivation });
                connects(&Target { tls, ..target(&server, HOST, own) });
            }
        }
    }
}

#[test]
fn keys_are_exchanged_and_revoked_while_hosts_stay() {
    let (server, vault) = server(Security::Required);
    let (old, new) = (target(&server, HOST, 0), target(&server, HOST, 1));
    let set = |keys: &[usize]| *vault.0.lock().unwrap() = keys.to_vec();
    set(&[0]);
    let mut admin = connects(&old);
    let mut queue = admin.queue(1, 16).unwrap();
    stays_out(&new);
    set(&[0, 1]);
    connects(&old);
    connects(&new);
    set(&[1]);
    stays_out(&old);
    assert!(admin.queue(2, 16).is_err(), "nor for another queue");
    connects(&new);
    set(&[]);
    stays_out(&new);
    assert_eq!(why(&server), format!("{HOST}: its file is gone"));
    works(&mut queue);
    admin.keep_alive().unwrap();
}

#[test]
fn who_has_another_key_or_name_stays_out_and_is_told_of() {
    let (server, _) = server(Security::Required);
    stays_out(&target(&server, HOST, 1));
    assert_eq!(why(&server), format!("{HOST}: TLS with another key"));
    let unknown = "nqn.2026-11.org.example:unknown";
    stays_out(&target(&server, unknown, 0));
    assert_eq!(why(&server), format!("{unknown}: TLS, and it has no key here"));
    let elsewhere = "nqn.2026-11.org.example:elsewhere";
    stays_out(&Target { subsystem: elsewhere.to_owned(), ..target(&server, HOST, 0) });
    assert!(why(&server).contains(&format!("for subsystem {elsewhere}")), "{}", why(&server));
    // The identity's name with another key: what is in the digest decides, or the binder.
    let tls = Some(Tls { version: Version::Zero, ..Tls::new(key(1)) });
    stays_out(&Target { tls, ..target(&server, HOST, 0) });
    assert_eq!(server.subsystem.authentications(), Some(Tally { succeeded: 0, failed: 4 }));
    assert!(server.subsystem.failures_since(0).iter().all(|one| one.address.is_loopback()));
}

fn psk(host: &str, subsystem: &str, own: usize) -> Psk {
    key(own).psk(Version::One, Derivation::Rfc8446, host, subsystem).unwrap()
}

/// A wire that keeps what is sent.
#[derive(Default)]
struct Kept(Vec<u8>);

impl Read for Kept {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A first message by this PSK, and its session.
fn hello(psk: &Psk) -> (Vec<u8>, Session) {
    let (mut kept, mut session) =
        (Kept::default(), Session::connect(std::slice::from_ref(psk)).unwrap());
    assert!(!session.handshake(&mut kept).unwrap());
    (kept.0, session)
}

fn dials(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// All that comes until the end; a reset is one.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => bytes,
        Err(error) => panic!("not closed: {error}"),
    }
}

/// As with DH-HMAC-CHAP; a host of another name is let in meanwhile.
#[test]
fn who_fails_again_and_again_waits_and_nobody_else() {
    let limits = Limits { handshake: Nanos::from_secs(60), ..Limits::default() };
    let (server, _) = server_with(Security::Required, limits);
    stays_out(&target(&server, HOST, 1));
    stays_out(&target(&server, HOST, 1));
    let begun = Instant::now();
    stays_out(&target(&server, HOST, 1));
    assert_eq!(server.subsystem.authentications(), Some(Tally { succeeded: 0, failed: 3 }));
    std::thread::scope(|scope| {
        // Even with the right key.
        let waits = scope.spawn(|| {
            connects(&target(&server, HOST, 0));
            begun.elapsed()
        });
        connects(&target(&server, OTHER, 3));
        assert!(waits.join().unwrap() >= Duration::from_secs(2));
    });
    // By then it has shown who it is.
    works(&mut connects(&target(&server, HOST, 0)).queue(1, 16).unwrap());
}

/// Somebody at the address of a host sends first messages in its name, and waits for each.
#[test]
fn who_has_the_key_gets_in_however_often_others_fail_in_its_name() {
    let limits = Limits { handshake: Nanos::from_secs(60), ..Limits::default() };
    let (server, _) = server_with(Security::Required, limits);
    (0..3).for_each(|_| stays_out(&target(&server, HOST, 1)));
    let (wrong, _) = hello(&psk(HOST, NQN, 1));
    let crowd: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = dials(&server);
            stream.write_all(&wrong).unwrap();
            stream
        })
        .collect();
    works(&mut connects(&target(&server, HOST, 0)).queue(1, 16).unwrap());
    drop(crowd);
}

#[test]
fn the_names_of_connect_must_be_those_of_the_key() {
    let (server, _) = server(Security::Required);
    let psk = psk(HOST, NQN, 0);
    for (host, subsystem, fine) in [
        (HOST, NQN, true),
        (OTHER, NQN, false),
        (HOST, "nqn.2014-08.org.nvmexpress.discovery", false),
    ] {
        let mut stream =
            Stream::connect(dials(&server), std::slice::from_ref(&psk), Duration::from_secs(20))
                .unwrap();
        let who = Host { name: host.to_owned(), subsystem, depth: 32 };
        let (sqe, data) = connect_as(&who, 0, 0xffff);
        stream.write_all(&initialize(Digests::default())).unwrap();
        stream.write_all(&Peer::new(&server).capsule(sqe, &data)).unwrap();
        let mut answers = [0; 128 + 24];
        stream.read_exact(&mut answers).unwrap();
        let (answer, _) = CapsuleResp::read_from_prefix(&answers[128..]).unwrap();
        let status = answer.cqe.status();
        assert_eq!(status.is_success(), fine, "{host} {subsystem}: {status:?}");
    }
}

#[test]
fn a_listener_that_requires_tls_takes_nothing_else() {
    let (server, _) = server(Security::Required);
    let mut plain = Peer::new(&server);
    plain.send(&[0; 128]);
    assert!(plain.pdu().is_none(), "it must be closed");
    assert!(why(&server).contains("does not begin with TLS"), "{}", why(&server));
}

#[test]
fn a_listener_that_offers_tls_takes_both_and_keeps_those_with_keys_to_it() {
    let (server, _) = server(Security::Offered);
    works(&mut connects(&target(&server, HOST, 0)).queue(1, 16).unwrap());
    // Without TLS the name alone is not enough.
    let plain = Target { tls: None, ..target(&server, HOST, 0) };
    let error = Controller::connect(&plain).err().unwrap();
    assert!(error.to_string().contains("may need a key for TLS"), "{error}");
    ebb_initiator::discover(&plain).unwrap();
}

#[test]
fn a_listener_without_tls_refuses_it() {
    let server = Server::start(Limits::default());
    let error = Controller::connect(&target(&server, HOST, 0)).err().unwrap();
    assert!(matches!(error, Error::Insecure(_)), "{error}");
    works(&mut connects(&Target { tls: None, ..target(&server, HOST, 0) }).queue(1, 16).unwrap());
}

/// Cut anywhere, and anything instead.
#[test]
fn broken_first_messages_end_their_connection_and_nothing_else() {
    let limits = Limits { handshake: Nanos::from_millis(300), ..Limits::default() };
    let (server, _) = server_with(Security::Required, limits);
    let admin = connects(&target(&server, HOST, 0));
    let mut queue = admin.queue(1, 16).unwrap();
    let (good, _) = hello(&psk(HOST, NQN, 0));
    for end in [1, 5, 9, 100, good.len() - 1] {
        // One that waits, and one that goes away.
        let mut waits = dials(&server);
        waits.write_all(&good[..end]).unwrap();
        let mut leaves = dials(&server);
        leaves.write_all(&good[..end]).unwrap();
        leaves.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(leaves), []);
        assert_eq!(rest(waits), [], "cut at {end}");
    }
    let binder = good.len() - 1;
    let mut changed = good.clone();
    changed[binder] ^= 1;
    for (bytes, alert) in [
        (changed, 51),
        (vec![22, 3, 1, 0, 4, 2, 0, 0, 0], 50),
        ([&[22, 3, 1, 0x40, 0][..], &[1; 9000]].concat(), 50),
    ] {
        let mut stream = dials(&server);
        stream.write_all(&bytes).unwrap();
        let told = rest(stream);
        assert!(told.is_empty() || told == [21, 3, 3, 0, 2, 2, alert], "{told:?}");
    }
    works(&mut queue);
}

/// Somebody who has seen a first message can send it, and no more.
#[test]
fn a_first_message_that_is_replayed_is_of_no_use() {
    let limits = Limits { handshake: Nanos::from_millis(300), ..Limits::default() };
    let (server, _) = server_with(Security::Required, limits);
    let (good, _) = hello(&psk(HOST, NQN, 0));
    for finish in [&[][..], &[20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 40], &[23, 3, 3, 0, 1, 0]] {
        let mut stream = dials(&server);
        stream.write_all(&good).unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..3], [22, 3, 3], "ServerHello");
        stream.write_all(finish).unwrap();
        stream.write_all(&vec![7; if finish.is_empty() { 0 } else { 40 }]).unwrap();
        rest(stream);
    }
    let failures = server.subsystem.failures_since(0);
    assert_eq!((failures.len(), failures[0].host.as_str()), (3, HOST), "{failures:?}");
    assert!(failures[0].why.contains("does not end the handshake"), "{}", failures[0].why);
}

#[test]
fn a_host_may_be_slow_within_its_time() {
    let (server, _) = server(Security::Required);
    let (good, mut session) = hello(&psk(HOST, NQN, 0));
    let mut stream = dials(&server);
    stream.set_nodelay(true).unwrap();
    for byte in good.chunks(3) {
        stream.write_all(byte).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    while !session.handshake(&stream).unwrap() {}
}

/// A host that goes on before it is answered, such as one with early data.
#[test]
fn nothing_may_follow_the_first_message_before_its_answer() {
    let (server, _) = server(Security::Required);
    let (good, _) = hello(&psk(HOST, NQN, 0));
    let mut stream = dials(&server);
    stream.write_all(&[&good[..], &[23, 3, 3, 0, 32], &[9; 32]].concat()).unwrap();
    rest(stream);
    connects(&target(&server, HOST, 0));
}

/// Sends so many reads of 128 KiB.
fn asks(queue: &mut Queue, count: u64) {
    for tag in 0..count {
        let (buffer, from) = (vec![0; 128 << 10], Instant::now());
        let read = Request { op: Op::Read, nsid: 1, lba: 0, blocks: 256, buffer, tag, from };
        queue.submit(read).unwrap();
    }
    queue.flush().unwrap();
}

#[test]
fn a_host_that_goes_away_in_the_middle_frees_what_it_had() {
    let (server, _) = server(Security::Required);
    for _ in 0..4 {
        let admin = connects(&target(&server, HOST, 0));
        let mut queue = admin.queue(1, 16).unwrap();
        asks(&mut queue, 8);
        drop((queue, admin));
    }
    let start = Instant::now();
    while server.subsystem.controllers() > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "controllers stay");
        std::thread::sleep(Duration::from_millis(5));
    }
    works(&mut connects(&target(&server, HOST, 0)).queue(1, 16).unwrap());
}

/// A host that does not read holds what the kernel and the session do, and no more.
#[test]
fn answers_that_are_not_read_wait_in_the_target() {
    let limits = Limits { stall: Nanos::from_millis(700), ..Limits::default() };
    let (server, _) = server_with(Security::Required, limits);
    let admin = connects(&target(&server, HOST, 0));
    let mut queue = admin.queue(1, 64).unwrap();
    asks(&mut queue, 60);
    // Another host meanwhile.
    works(&mut connects(&target(&server, OTHER, 3)).queue(1, 16).unwrap());
    let mut done = Vec::new();
    let start = Instant::now();
    while done.len() < 60 {
        if queue.poll(&mut done).is_err() {
            break; // It was too slow for the target, as it may be.
        }
        queue.wait(Duration::from_millis(20)).unwrap();
        assert!(start.elapsed() < Duration::from_secs(60));
    }
    assert!(done.iter().all(|one| one.status.is_success()));
}
