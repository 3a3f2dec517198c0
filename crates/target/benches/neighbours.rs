//! What a host's reads take while another one does its worst, against alone: p50, p99 and the
//! longest, measured here. `cargo bench -p ebb-target --bench neighbours`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, dead_code)]

#[path = "../tests/transport/peer.rs"]
mod peer;
#[path = "../tests/transport/server.rs"]
mod server;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ebb_nvme::Sqe;
use ebb_nvme::command::{admin, io, sgl};
use ebb_nvme::pdu::Digests;
use ebb_target::device::{Spec, open};
use ebb_target::transport::Limits;

use peer::{Host, Peer, transfer};
use server::Server;

/// Reads measured in each situation, of 4 KiB at depth 1.
const READS: u32 = 20_000;

/// What the other host does until it is told to stop.
type Worst = fn(&Server, &AtomicBool);

fn queues(server: &Server, count: u16) -> (Peer, Vec<Peer>) {
    let host = Host::named("nqn.2026-11.org.example:other");
    let (admin, id) = Peer::enabled(server, &host, Digests::default());
    let join = |queue| Peer::joined_as(server, &host, queue, id, Digests::default()).0;
    (admin, (1..=count).map(join).collect())
}

fn wait(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn nothing(_: &Server, _: &AtomicBool) {}

fn unanswered(server: &Server, stop: &AtomicBool) {
    let (_admin, mut queues) = queues(server, 12);
    for peer in &mut queues {
        for cid in 0..31 {
            peer.send(&peer.capsule(transfer(io::WRITE, cid, 0, 256, sgl::TRANSPORT), &[]));
        }
    }
    wait(stop);
}

fn unread(server: &Server, stop: &AtomicBool) {
    let (admin, queues) = queues(server, 12);
    for peer in &queues {
        let reads = (0..31).cycle().take(2000);
        let read = |cid| peer.capsule(transfer(io::READ, cid, 0, 256, sgl::TRANSPORT), &[]);
        peer.push(&reads.flat_map(read).collect::<Vec<u8>>());
    }
    let mut log = Sqe::new(admin::GET_LOG_PAGE, 1);
    (log.sgl_identifier, log.sgl_length) = (sgl::TRANSPORT, (128 << 10).into());
    log.set_cdw(10, 2 | 0x7fff << 16);
    admin.push(&admin.capsule(log, &[]).repeat(4000));
    wait(stop);
}

/// Sends `batch` again and again, and reads what comes.
fn keep_up(peer: &Peer, batch: &[u8], stop: &AtomicBool) {
    let (mut reader, mut writer) =
        (peer.stream.try_clone().unwrap(), peer.stream.try_clone().unwrap());
    let drain = std::thread::spawn(move || {
        let (mut bytes, mut moved) = (vec![0; 1 << 20], 0);
        while let Ok(count @ 1..) = reader.read(&mut bytes) {
            moved += count;
        }
        moved
    });
    while !stop.load(Ordering::Relaxed) {
        writer.write_all(batch).expect("it is served on");
    }
    peer.stream.shutdown(Shutdown::Both).unwrap();
    assert!(drain.join().unwrap() > 1 << 20, "it read next to nothing");
}

fn deallocations(server: &Server, stop: &AtomicBool) {
    let (_admin, queues) = queues(server, 1);
    let mut sqe = transfer(io::DATASET_MANAGEMENT, 0, 0, 8, sgl::IN_CAPSULE);
    sqe.set_cdw(10, 3);
    sqe.set_cdw(11, 4);
    let range = [&[0; 4][..], &(1_u32 << 20).to_le_bytes(), &[0; 8]].concat();
    let mut data = range.repeat(4);
    data.resize(4096, 0);
    let batch = (0..30).flat_map(|cid| {
        sqe.cid = cid.into();
        queues[0].capsule(sqe, &data)
    });
    let batch: Vec<u8> = batch.collect();
    queues[0].push(&batch);
    wait(stop);
}

fn large_reads(server: &Server, stop: &AtomicBool) {
    let (_admin, queues) = queues(server, 4);
    std::thread::scope(|scope| {
        for peer in &queues {
            let read = |cid| peer.capsule(transfer(io::READ, cid, 0, 256, sgl::TRANSPORT), &[]);
            let batch: Vec<u8> = (0..8).flat_map(read).collect();
            scope.spawn(move || keep_up(peer, &batch, stop));
        }
    });
}

fn measure(name: &str, worst: Worst) -> (Duration, Duration) {
    let device = open(&"ram:512MiB,block=512B".parse::<Spec>().unwrap()).unwrap();
    let server = Server::of(device, Limits::default());
    let stop = AtomicBool::new(false);
    let mut times = std::thread::scope(|scope| {
        scope.spawn(|| worst(&server, &stop));
        std::thread::sleep(Duration::from_millis(500));
        let (_admin, mut peer) = Peer::pair(&server, Digests::default());
        let mut times: Vec<_> = (0..READS)
            .map(|number| {
                let begun = Instant::now();
                assert_eq!(peer.read((number % 1000) as u16, u64::from(number), 8).len(), 4096);
                begun.elapsed()
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        times.sort_unstable();
        times
    });
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let (p50, p99) = (at(0.5), at(0.99));
    println!(
        "{name:44} p50 {p50:>10.1?}  p99 {p99:>10.1?}  longest {:>10.1?}",
        times.pop().unwrap()
    );
    (p50, p99)
}

fn main() {
    let situations: [(&str, Worst); 5] = [
        ("alone", nothing),
        ("12 queues of unanswered requests for data", unanswered),
        ("12 queues of unread answers", unread),
        ("30 deallocations of 4 times 512 MiB", deallocations),
        ("4 queues of 128 KiB reads at depth 8", large_reads),
    ];
    let mut alone = None;
    for (name, worst) in situations {
        let (p50, p99) = measure(name, worst);
        let (p50_alone, p99_alone) = *alone.get_or_insert((p50, p99));
        let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
        println!("{:44} {:.2}x  {:.2}x", "", ratio(p50, p50_alone), ratio(p99, p99_alone));
    }
}
