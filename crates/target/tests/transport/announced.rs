//! Hosts that ask for all that a controller announces, and devices that hang: others are answered
//! meanwhile. What is asked for comes from Identify, so that another limit makes another attack.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use ebb_nvme::command::{admin, io, sgl};
use ebb_nvme::pdu::{Digests, Kind};
use ebb_nvme::{Sqe, Status};
use ebb_policy::units::Nanos;
use ebb_target::device::{Device, Spec, open};
use ebb_target::transport::Limits;

use super::peer::{Host, Peer, transfer};
use super::server::{DONE, Gate, Server};

/// Queues of a host that attacks.
const QUEUES: u16 = 16;
/// The namespaces: in memory, in a file, and one that hangs.
const RAM: u32 = 1;
const FILE: u32 = 2;
const HUNG: u32 = 3;

fn device(spec: &str) -> Arc<dyn Device> {
    open(&spec.parse::<Spec>().unwrap()).unwrap()
}

/// What one command, and one queue, may be.
struct Announced {
    /// IOCCSZ, less the command: bytes.
    capsule: usize,
    /// MDTS: bytes.
    transfer: u32,
    /// MQES: commands of a queue, less one.
    entries: u16,
    /// DMRL, DMRSL, DMSL.
    ranges: u8,
    range_blocks: u32,
    all_blocks: u64,
    /// WZSL: bytes.
    zeroes: u32,
}

impl Announced {
    fn ask(admin: &mut Peer) -> Self {
        let page = |exponent: u8| 4096 << exponent;
        let (id, set) = (admin.identify(1, 0), admin.identify(6, 0));
        let u32_at =
            |data: &[u8], at: usize| u32::from_le_bytes(*data[at..].first_chunk().unwrap());
        Self {
            capsule: u32_at(&id, 1792) as usize * 16 - size_of::<Sqe>(),
            transfer: page(id[77]),
            entries: admin.capabilities() as u16,
            ranges: set[3],
            range_blocks: u32_at(&set, 4),
            all_blocks: u64::from_le_bytes(*set[8..].first_chunk().unwrap()),
            zeroes: page(set[1]),
        }
    }
}

/// What a host does with all of its queues at once.
#[derive(Debug, Clone, Copy)]
enum Attack {
    /// Deallocates as much as may be.
    Deallocate,
    /// The same, with the list of ranges asked for.
    DeallocateWhenAsked,
    /// Writes zeros, as much as may be.
    Zero,
    /// Writes as much as may be, and keeps the data.
    Keep,
    /// Compares likewise.
    Compare,
    /// Reads as much as may be, and takes nothing.
    Read,
    /// Flushes.
    Flush,
}

impl Attack {
    const ALL: [Self; 7] = [
        Self::Deallocate,
        Self::DeallocateWhenAsked,
        Self::Zero,
        Self::Keep,
        Self::Compare,
        Self::Read,
        Self::Flush,
    ];

    fn command(self, peer: &Peer, cid: u16, nsid: u32, most: &Announced, blocks: u64) -> Vec<u8> {
        let whole = most.transfer / 512;
        let plain = |opcode| transfer(opcode, cid, 0, whole, sgl::TRANSPORT);
        let (mut sqe, mut data) = match self {
            Self::Deallocate => {
                let sqe = transfer(io::DATASET_MANAGEMENT, cid, 0, 8, sgl::IN_CAPSULE);
                (sqe, ranges(most, blocks))
            }
            Self::DeallocateWhenAsked => (plain(io::DATASET_MANAGEMENT), Vec::new()),
            Self::Zero => (transfer(io::WRITE_ZEROES, cid, 0, most.zeroes / 512, 0), Vec::new()),
            Self::Keep => (plain(io::WRITE), Vec::new()),
            Self::Compare => (plain(io::COMPARE), Vec::new()),
            Self::Read => (plain(io::READ), Vec::new()),
            Self::Flush => (Sqe::new(io::FLUSH, cid), Vec::new()),
        };
        sqe.nsid = nsid.into();
        if matches!(self, Self::Deallocate | Self::DeallocateWhenAsked) {
            sqe.set_cdw(10, u32::from(most.ranges) - 1);
            sqe.set_cdw(11, 4);
            sqe.sgl_length = 4096.into();
        }
        if matches!(self, Self::Zero) {
            sqe.sgl_length = 0.into();
            sqe.sgl_identifier = sgl::TRANSPORT;
        }
        assert!(data.len() <= most.capsule, "a list of ranges fits a capsule");
        data.truncate(most.capsule);
        peer.capsule(sqe, &data)
    }
}

/// As many blocks in as many ranges as may be.
fn ranges(most: &Announced, blocks: u64) -> Vec<u8> {
    let each = most.all_blocks / u64::from(most.ranges);
    let each = each.min(most.range_blocks.into()).min(blocks) as u32;
    let range = [&[0; 4][..], &each.to_le_bytes(), &[0; 8]].concat();
    let mut data = range.repeat(most.ranges.into());
    data.resize(4096, 0);
    data
}

/// A host that sends all it may on all of its queues; those are open until it is dropped.
struct Attacker {
    _connections: Vec<Peer>,
}

impl Attacker {
    fn begin(server: &Server, name: &str, nsid: u32, blocks: u64, attack: Attack) -> Self {
        Self::with(server, name, QUEUES, |peer, cid, most| {
            attack.command(peer, cid, nsid, most, blocks)
        })
    }

    /// On so many queues.
    fn with(
        server: &Server,
        name: &str,
        queues: u16,
        command: impl Fn(&Peer, u16, &Announced) -> Vec<u8>,
    ) -> Self {
        let mut host = Host::named(&format!("nqn.2026-11.org.example:{name}"));
        let (mut admin, id) = Peer::enabled(server, &host, Digests::default());
        let most = Announced::ask(&mut admin);
        host.depth = most.entries + 1;
        let begin = |queue| {
            let (peer, _) = Peer::joined_as(server, &host, queue, id, Digests::default());
            let commands = 0..most.entries;
            let commands = commands.map(|cid| command(&peer, cid, &most));
            peer.push(&commands.collect::<Vec<_>>().concat());
            peer
        };
        let queues: Vec<_> = (1..=queues).map(begin).collect();
        Self { _connections: queues.into_iter().chain([admin]).collect() }
    }
}

/// Every way in which another host uses the target; each is answered, or the test fails.
fn is_served(server: &Server) {
    /// Behind all that attackers zero and deallocate.
    const AT: u64 = 20_480;
    let host = Host::named("nqn.2026-11.org.example:other");
    let (mut admin, id) = Peer::enabled(server, &host, Digests::default());
    let most = Announced::ask(&mut admin);
    let (mut plain, _) = Peer::joined_as(server, &host, 1, id, Digests::default());
    let digests = Digests { header: true, data: true };
    let (mut checked, _) = Peer::joined_as(server, &host, 2, id, digests);
    for round in 0..5 {
        let data = vec![round as u8 + 1; most.transfer as usize];
        assert_eq!(plain.write_when_asked(1, AT, &data), Status::SUCCESS);
        assert_eq!(plain.read(2, AT, most.transfer / 512), data);
        assert_eq!(checked.read(3, AT, 8), data[..4096]);
        assert_eq!(plain.write(4, AT + 4096, &data[..4096]), Status::SUCCESS);
        let mut file = transfer(io::READ, 5, 0, 8, sgl::TRANSPORT);
        file.nsid = FILE.into();
        assert_eq!(plain.roundtrip(file, &[]).data, [0; 4096]);
        assert_eq!(admin.identify(1, 0).len(), 4096);
        // A newcomer.
        let name = format!("nqn.2026-11.org.example:newcomer{round}");
        drop(Peer::enabled(server, &Host::named(&name), Digests::default()));
    }
}

/// Memory, a file and a device that hangs.
fn server(limits: Limits) -> (Server, Arc<AtomicU8>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let file = device(&format!("file:{},block=512B", path.display()));
    let (hung, opener) = Gate::before("ram:4MiB,block=512B", |_| true);
    let server = Server::of_all(vec![device("ram:16MiB,block=512B"), file, hung], limits);
    (server, opener, folder)
}

#[test]
fn a_host_that_asks_for_all_that_is_announced_stops_no_other() {
    let (server, _opener, _folder) = server(Limits::default());
    for attack in Attack::ALL {
        let _attacker = Attacker::begin(&server, "greedy", RAM, 32_768, attack);
        is_served(&server);
    }
}

#[test]
fn hosts_that_ask_for_all_at_once_stop_no_other() {
    let (server, _opener, _folder) = server(Limits::default());
    let attacks = Attack::ALL.into_iter().enumerate();
    let begin = |(at, attack): (usize, Attack)| {
        let nsid = [RAM, FILE, HUNG][at % 3];
        Attacker::begin(&server, &format!("greedy{at}"), nsid, 2048, attack)
    };
    let _attackers: Vec<_> = attacks.map(begin).collect();
    is_served(&server);
}

/// However many keep what they have for ever: hosts that send no data, devices that hang, strangers
/// who ask what there is and read nothing. Nobody is closed for it meanwhile.
#[test]
fn many_who_give_nothing_back_stop_no_other() {
    const MANY: u32 = 12;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let file = device(&format!("file:{},block=512B", path.display()));
    let mut devices = vec![device("ram:16MiB,block=512B"), file];
    let hung = (0..MANY).map(|_| Gate::before("ram:4MiB,block=512B", |_| true).0);
    devices.extend(hung.map(|gate| gate as Arc<dyn Device>));
    let ever = Nanos::from_secs(3600);
    let limits = Limits { patience: ever, recall: ever, stall: ever, ..Limits::default() };
    let server = Server::of_all(devices, Limits { silence: Nanos::from_millis(50), ..limits });
    let begin = |name: &str, at: u32, nsid: u32, attack: Attack| {
        Attacker::begin(&server, &format!("{name}{at}"), nsid, 2048, attack)
    };
    let keep = (0..MANY).map(|at| begin("keeps", at, RAM, Attack::Keep));
    let _keep: Vec<_> = keep.collect();
    is_served(&server);
    let _hang: Vec<_> = (0..MANY).map(|at| begin("hung", at, HUNG + at, Attack::Read)).collect();
    is_served(&server);
    let ask = |at: u32| {
        let host = Host {
            subsystem: "nqn.2014-08.org.nvmexpress.discovery",
            ..Host::named(&format!("nqn.2026-11.org.example:stranger{at}"))
        };
        let (peer, _) = Peer::enabled(&server, &host, Digests::default());
        let logs = (1..30).map(|cid| log(&peer, cid, 0x70, 128 << 10));
        peer.push(&logs.collect::<Vec<_>>().concat());
        peer
    };
    let _strangers: Vec<_> = (0..40).map(ask).collect();
    is_served(&server);
}

/// Get Log Page.
fn log(peer: &Peer, cid: u16, page: u32, bytes: u32) -> Vec<u8> {
    let mut sqe = transfer(admin::GET_LOG_PAGE, cid, 0, 1, sgl::TRANSPORT);
    sqe.sgl_length = bytes.into();
    sqe.set_cdw(10, page | (bytes / 4 - 1) << 16);
    peer.capsule(sqe, &[])
}

/// More of them than there are buffers for those who hold none. Who holds no more than one of a
/// kind is left alone.
#[test]
fn more_hosts_than_buffers_stop_no_other() {
    const MANY: u32 = 150;
    let ever = Nanos::from_secs(3600);
    let begin = |server: &Server, at: u32, queues, attack: Attack| {
        Attacker::with(server, &format!("{attack:?}{at}"), queues, |peer, cid, most| {
            attack.command(peer, cid, RAM, most, 2048)
        })
    };
    for attack in [Attack::Keep, Attack::Read, Attack::Deallocate] {
        let (server, ..) = server(Limits { patience: ever, stall: ever, ..Limits::default() });
        let _hosts: Vec<_> = (0..MANY).map(|at| begin(&server, at, 1, attack)).collect();
        is_served(&server);
    }
    let (server, ..) = server(Limits { patience: ever, stall: ever, ..Limits::default() });
    let ask = |at: u32| {
        let name = format!("nqn.2026-11.org.example:asks{at}");
        let (peer, _) = Peer::enabled(&server, &Host::named(&name), Digests::default());
        let logs = (1..30).map(|cid| log(&peer, cid, 2, 128 << 10));
        peer.push(&logs.collect::<Vec<_>>().concat());
        peer
    };
    let _hosts: Vec<_> = (0..MANY).map(ask).collect();
    is_served(&server);
}

/// Enables retry delays (Base 5.27.1.18, ACRE).
fn obeys_delays(admin: &mut Peer) {
    let mut sqe = transfer(admin::SET_FEATURES, 9, 0, 1, sgl::IN_CAPSULE);
    sqe.set_cdw(10, 0x16);
    let mut data = [0; 512];
    data[0] = 1;
    assert_eq!(admin.roundtrip(sqe, &data).cqe().status(), Status::SUCCESS);
}

#[test]
fn a_device_that_hangs_takes_its_share_and_is_said_to_be_tried_later() {
    let silence = Nanos::from_millis(50);
    let (server, opener, _folder) = server(Limits { silence, ..Limits::default() });
    let mut host = Host::named("nqn.2026-11.org.example:ordinary");
    let (mut admin, id) = Peer::enabled(&server, &host, Digests::default());
    host.depth = Announced::ask(&mut admin).entries + 1;
    obeys_delays(&mut admin);
    let write = |peer: &Peer, cid: u16| {
        let mut sqe = transfer(io::WRITE, cid, u64::from(cid), 16, sgl::IN_CAPSULE);
        sqe.nsid = HUNG.into();
        peer.capsule(sqe, &[7; 8192])
    };
    // As a Linux host with eight cores does at a depth of 128.
    let commands = host.depth - 2;
    let begin = |queue| {
        let (peer, _) = Peer::joined_as(&server, &host, queue, id, Digests::default());
        let bytes = (0..commands).map(|cid| write(&peer, cid)).collect::<Vec<_>>().concat();
        let mut stream = peer.stream.try_clone().unwrap();
        // Takes until the target gives up on what finds no buffer.
        let sending = thread::spawn(move || stream.write_all(&bytes).unwrap());
        (peer, sending)
    };
    let begun: Vec<_> = (1..=8).map(begin).collect();
    is_served(&server);
    let sent = |(peer, sending): (_, thread::JoinHandle<()>)| sending.join().map(|()| peer);
    let mut queues: Vec<Peer> = begun.into_iter().map(sent).collect::<Result<_, _>>().unwrap();
    // Behind those that found no buffer: their host's own reads of another namespace.
    for peer in &mut queues {
        peer.send(&peer.capsule(transfer(io::READ, 999, 0, 8, sgl::TRANSPORT), &[]));
    }
    let mut interrupted = [0; 8];
    for (peer, interrupted) in queues.iter_mut().zip(&mut interrupted) {
        loop {
            let pdu = peer.pdu().unwrap();
            if pdu.frame.kind == Kind::C2hData {
                break;
            }
            assert_eq!(pdu.cqe().status(), Status::COMMAND_INTERRUPTED);
            *interrupted += 1;
        }
    }
    let held = u32::from(commands) * 8 - interrupted.iter().sum::<u32>();
    let buffers = Limits::default().buffers;
    assert!((buffers / 4..=buffers / 2).contains(&held), "the device has {held}");
    opener.store(DONE, Ordering::SeqCst);
    for (peer, interrupted) in queues.iter_mut().zip(interrupted) {
        for _ in interrupted..commands.into() {
            assert_eq!(peer.pdu().unwrap().cqe().status(), Status::SUCCESS);
        }
    }
    for peer in &mut queues {
        peer.send(&write(peer, 1));
        assert_eq!(peer.pdu().unwrap().cqe().status(), Status::SUCCESS);
    }
}
