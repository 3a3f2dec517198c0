//! A small NVMe/TCP controller over loopback with its namespaces in memory: the peer of the
//! initiator's tests. It can be told to misbehave once. Blocking, one thread per connection.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)] // each test file uses its own part

mod admin;
mod connection;

use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ebb_nvme::Status;
use ebb_nvme::pdu::Digests;

/// NQN of the peer's subsystem.
pub const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000000";

/// Something a target must not do, done once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A wrong data digest.
    DataDigest,
    /// A wrong header digest.
    HeaderDigest,
    /// Data that leaves a hole.
    Offset,
    /// Data beyond what was asked for.
    TooLong,
    /// A length in the header that is not the PDU's.
    LengthMismatch,
    /// An answer to nobody.
    UnknownCommand,
    /// Two answers to one command.
    Twice,
    /// A PDU of no known type.
    UnknownPdu,
    /// A PDU that only a host sends.
    HostPdu,
    /// A header shorter than its type has.
    ShortHeader,
    /// Success before any data went over.
    Early,
    /// Data for a write.
    DataForWrite,
    /// A second R2T before the first was answered.
    TwoRequests,
    /// An R2T beyond the end of the data.
    RequestBeyond,
    /// SUCCESS without LAST.
    SuccessNotLast,
    /// A terminate request.
    Terminate,
    /// Closes the connection after half a PDU.
    CloseInside,
    /// Closes the connection.
    Close,
    /// Never says anything again.
    Stall,
    /// Acknowledges a write and forgets it: seen only by who reads back.
    LoseWrite,
    /// Writes to the block after the one asked for.
    Misdirect,
    /// Flips one bit of what is read.
    FlipBit,
    /// Answers with this status.
    Status(Status),
}

/// One namespace: its blocks in memory.
#[derive(Debug)]
pub struct Disk {
    pub block_size: u32,
    pub data: Vec<u8>,
}

/// How the peer behaves.
#[derive(Debug, Clone)]
pub struct Config {
    /// Digests it agrees to.
    pub digests: Digests,
    /// Bytes of data it takes in a capsule.
    pub in_capsule: usize,
    /// MAXH2CDATA.
    pub max_h2c: u32,
    /// CPDA: alignment it wants, in dwords less one.
    pub alignment: u8,
    /// MDTS: most data of a command, as a power of two of pages; 0 for no limit.
    pub mdts: u8,
    /// MQES: entries of a queue less one.
    pub entries: u16,
    /// I/O queues it grants.
    pub queues: u16,
    /// Leaves out response capsules of reads.
    pub success: bool,
    /// Most data in one C2HData, and asked for by one R2T.
    pub piece: usize,
    /// Answers the last command first where several are there.
    pub reorder: bool,
    /// The fault, and how many I/O commands go well before it.
    pub fault: Option<(Fault, u64)>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            digests: Digests { header: true, data: true },
            in_capsule: 4096,
            max_h2c: 8192,
            alignment: 0,
            mdts: 5,
            entries: 127,
            queues: 8,
            success: true,
            piece: 16384,
            reorder: false,
            fault: None,
        }
    }
}

/// What all connections share.
pub struct Shared {
    pub config: Config,
    pub address: SocketAddr,
    pub disks: Arc<Mutex<BTreeMap<u32, Disk>>>,
    /// I/O commands until the fault.
    countdown: AtomicU64,
    controllers: AtomicU16,
    stopping: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
    /// Reads, writes, compares, flushes, write zeroes and deallocates that were done.
    pub served: AtomicU64,
    /// Disconnect commands seen.
    pub disconnects: AtomicU64,
}

impl Shared {
    /// The fault, if it is its turn: once.
    fn fault(&self) -> Option<Fault> {
        let (fault, _) = self.config.fault?;
        let before = self.countdown.fetch_sub(1, Ordering::SeqCst);
        (before == 0).then_some(fault)
    }
}

/// The running peer; stops when dropped.
pub struct Peer {
    pub shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Namespaces 1 and 2: 4 KiB and 512-byte blocks, 4 MiB and 1 MiB.
pub fn disks() -> Arc<Mutex<BTreeMap<u32, Disk>>> {
    let disk = |block_size, bytes| Disk { block_size, data: vec![0; bytes] };
    let all = BTreeMap::from([(1, disk(4096, 4 << 20)), (2, disk(512, 1 << 20))]);
    Arc::new(Mutex::new(all))
}

impl Peer {
    /// Listens on a free port.
    pub fn start(config: Config) -> Self {
        Self::start_with(config, disks(), "127.0.0.1:0".parse().unwrap())
    }
    /// Listens on `address` with these namespaces.
    pub fn start_with(
        config: Config,
        disks: Arc<Mutex<BTreeMap<u32, Disk>>>,
        address: SocketAddr,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let countdown = AtomicU64::new(config.fault.map_or(0, |(_, after)| after));
        let shared = Arc::new(Shared {
            config,
            address: listener.local_addr().unwrap(),
            disks,
            countdown,
            controllers: AtomicU16::new(1),
            stopping: AtomicBool::new(false),
            streams: Mutex::default(),
            served: AtomicU64::new(0),
            disconnects: AtomicU64::new(0),
        });
        let own = shared.clone();
        let thread = std::thread::spawn(move || accept(&own, &listener));
        Self { shared, thread: Some(thread) }
    }
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }
    /// I/O commands done.
    pub fn served(&self) -> u64 {
        self.shared.served.load(Ordering::SeqCst)
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    let mut threads = Vec::new();
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::SeqCst) {
            break;
        }
        let stream = stream.unwrap();
        shared.streams.lock().unwrap().push(stream.try_clone().unwrap());
        let own = shared.clone();
        threads.push(std::thread::spawn(move || connection::serve(&own, stream)));
    }
    for stream in shared.streams.lock().unwrap().iter() {
        let _ = stream.shutdown(Shutdown::Both);
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.shared.address)); // wakes the listener
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(!matches!(ended, Some(Err(_))), "the peer panicked");
        }
    }
}
