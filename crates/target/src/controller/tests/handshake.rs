//! Whole associations as the Linux host makes and ends them.

use ebb_nvme::tls::Security;

use super::*;

/// Connect, CAP, CC.EN, CSTS, VS, Identify, effects, limits, queues, events, I/O queues,
/// namespaces; then CC.SHN and goodbye.
#[test]
fn an_association_as_linux_makes_it() {
    let subsystem = subsystem();
    let mut admin = admin_of(&subsystem, NQN, 10_000);
    let cap = get(&mut admin, 0x00);
    assert_eq!((cap & 0xffff, cap >> 37 & 1), (127, 1));
    assert_eq!(get(&mut admin, 0x1c), 0);
    assert!(cap >> 59 & 1 == 1 && get(&mut admin, 0x68) & 0xffff > 0);
    configure(&mut admin, ENABLE);
    assert_eq!((get(&mut admin, 0x1c), get(&mut admin, 0x14)), (1, ENABLE.into()));
    assert_eq!(get(&mut admin, 0x08), 0x0002_0000);
    let id = identify(&mut admin, 1, 0).unwrap();
    assert_eq!(u16_at(&id, 78), admin.controller_id());
    // What drivers/nvme/host insists on: commands, keep-alive, SGLs, capsules, no data offset.
    assert!(u16_at(&id, 514) == 128 && u16_at(&id, 320) > 0 && u32_at(&id, 536) & 3 == 1);
    assert_eq!((u32_at(&id, 1792), u32_at(&id, 1796), u16_at(&id, 1800)), (4 + 512, 1, 0));
    let effects = log(&mut admin, 0x05, 0, 4096).unwrap();
    assert_eq!(u32_at(&effects, 4 * 0x06) & 1, 1);
    assert_eq!(u32_at(&effects, 1024 + 4) & 3, 3); // Write changes blocks.
    let sizes = identify(&mut admin, 6, 0).unwrap();
    assert_eq!((sizes[..4].to_vec(), u32_at(&sizes, 4)), (vec![0, 11, 0, 255], 1 << 20));
    assert_eq!((u64_at(&sizes, 8), &sizes[16..]), (1 << 22, &[0; 4080][..]));
    assert_eq!(feature(&mut admin, admin::SET_FEATURES, 0x07, 0x0001_0001), Ok(0x0001_0001));
    let mut io: Vec<_> = (1..=2).map(|id| try_io(&subsystem, &admin, id).unwrap()).collect();
    assert_eq!(try_io(&subsystem, &admin, 3).err().unwrap().result, 42);
    assert_eq!(hold(&mut admin, 31), Reply::Pending);
    let list = identify(&mut admin, 2, 0).unwrap();
    assert_eq!([0, 4, 8, 12].map(|at| u32_at(&list, at)), [1, 2, 3, 0]);
    for nsid in 1..=3 {
        assert_eq!(identify(&mut admin, 3, nsid).unwrap()[..4], [2, 16, 0, 0]);
        assert_eq!(identify(&mut admin, 8, nsid).unwrap()[14], 1);
        assert!(u64_at(&identify(&mut admin, 0, nsid).unwrap(), 0) > 0);
    }
    assert!(io.iter().all(|queue| queue.alive(NOW)));
    configure(&mut admin, ENABLE | 1 << 14);
    assert!(!io.iter().any(|queue| queue.alive(NOW)));
    assert!(admin.alive(NOW), "it answers until its host closes the connection");
    // Not before their threads know that, and the devices have done what they had.
    assert_eq!(admin.begin_flushes(), vec![]);
    let mut left: Vec<_> = io.iter_mut().map(|queue| queue.end(vec![1], NOW)).collect();
    assert_eq!((admin.begin_flushes(), left.pop().is_some()), (vec![], true));
    left.iter_mut().flatten().for_each(|left| left.done(1));
    // Complete once all three namespaces are flushed.
    assert_eq!((admin.begin_flushes(), admin.begin_flushes()), (vec![0, 1, 2], vec![]));
    for _ in 0..3 {
        assert_eq!(get(&mut admin, 0x1c), 0b0101);
        admin.flushed(Status::SUCCESS);
    }
    assert_eq!(get(&mut admin, 0x1c), 0b1001);
    drop(admin);
    assert_eq!(subsystem.controllers(), 0);
}

/// SPDK's tools leave HOSTNQN empty.
#[test]
fn a_host_without_a_name_may_connect_where_any_host_may() {
    let connect_to = |subsystem: &Arc<Subsystem>| {
        let data = data(NQN, "", ANY_CONTROLLER);
        subsystem.connect(&connect(0, 31, 0), data.as_bytes(), NOW).map(drop)
    };
    assert_eq!(connect_to(&subsystem()).ok(), Some(()));
    let allowed_hosts = Some(vec![HOST.to_owned()]);
    let choosy = Subsystem::new(Config { allowed_hosts, ..config() }).unwrap();
    assert_eq!(connect_to(&choosy).unwrap_err().status, Status::CONNECT_INVALID_HOST);
}

#[test]
fn discovery_as_nvme_cli_does_it() {
    let subsystem = subsystem();
    let mut admin = enabled(&subsystem, ebb_nvme::fabrics::DISCOVERY_NQN);
    let id = identify(&mut admin, 1, 0).unwrap();
    assert_eq!((id[111], u32_at(&id, 92) >> 31), (2, 1));
    assert!(id[768..].starts_with(ebb_nvme::fabrics::DISCOVERY_NQN.as_bytes()));
    let header = log(&mut admin, 0x70, 0, 16).unwrap();
    let (generation, count) = (u64_at(&header, 0), u64_at(&header, 8));
    assert_eq!(count, 4);
    let whole = log(&mut admin, 0x70, 0, 1024 * (1 + count as u32)).unwrap();
    assert_eq!(u64_at(&whole, 0), generation);
    let pieces: Vec<u8> =
        (0..=count).flat_map(|at| log(&mut admin, 0x70, at * 1024, 1024).unwrap()).collect();
    assert_eq!(whole, pieces);
    let first = &whole[1024..2048];
    assert_eq!((first[0], first[1], first[2], first[3]), (3, 1, 2, 4));
    assert_eq!((u16_at(first, 6), u16_at(first, 8)), (0xffff, 32));
    assert_eq!(first[32..40], *b"4420    ");
    assert!(first[256..].starts_with(NQN.as_bytes()) && first[256 + NQN.len()] == 0);
    assert_eq!(first[512..522], *b"127.0.0.1 ");
    assert_eq!(first[768], 0);
    let second = &whole[2048..3072];
    assert_eq!((second[1], &second[512..516]), (2, &b"::1 "[..]));
    assert_eq!(whole[3072 + 2], 3);
    // What only I/O controllers have.
    assert_eq!(identify(&mut admin, 2, 0), Err(Status::INVALID_FIELD));
    assert_eq!(log(&mut admin, 0x02, 0, 512), Err(Status::INVALID_LOG_PAGE));
    assert!(try_io(&subsystem, &admin, 1).is_err());
}

/// TREQ and SECTYPE (Base Figure 264, TCP Figure 11).
#[test]
fn discovery_tells_which_addresses_have_tls() {
    let subsystem = subsystem();
    let ports = [None, Some(Security::Offered), Some(Security::Required)].into_iter().zip(1..);
    let port = |(security, host)| Port { address: ([10, 0, 0, host], 4420).into(), security };
    subsystem.set_ports(&ports.map(port).collect::<Vec<_>>());
    let mut admin = enabled(&subsystem, ebb_nvme::fabrics::DISCOVERY_NQN);
    let log = log(&mut admin, 0x70, 0, 7 * 1024).unwrap();
    let told: Vec<_> = (1..7).map(|at| (log[at * 1024 + 3], log[at * 1024 + 768])).collect();
    assert_eq!(told, [(4, 0), (4, 2), (5, 2), (4, 0), (4, 2), (5, 2)]);
}

#[test]
fn persistent_discovery_connections_hear_of_changes() {
    let subsystem = subsystem();
    let mut admin = enabled(&subsystem, ebb_nvme::fabrics::DISCOVERY_NQN);
    assert_eq!(feature(&mut admin, admin::SET_FEATURES, 0x0b, 1 << 31), Ok(0));
    assert_eq!(hold(&mut admin, 5), Reply::Pending);
    assert_eq!(admin.completions(NOW), []);
    subsystem.set_ports(&[SocketAddr::from(([10, 0, 0, 1], 4420)).into()]);
    assert_eq!(admin.completions(NOW), [(5, Status::SUCCESS, 0x70_f002)]);
    // Further changes wait until the log was read.
    assert_eq!(hold(&mut admin, 6), Reply::Pending);
    subsystem.set_ports(&[]);
    assert_eq!(admin.completions(NOW), []);
    let header = log(&mut admin, 0x70, 0, 1024).unwrap();
    assert_eq!((u64_at(&header, 0), u64_at(&header, 8)), (3, 0));
    assert_eq!(admin.completions(NOW), []);
    subsystem.set_ports(&[SocketAddr::from(([10, 0, 0, 2], 4420)).into()]);
    assert_eq!(admin.completions(NOW), [(6, Status::SUCCESS, 0x70_f002)]);
}

#[test]
fn resets_end_queues_and_features_but_not_the_association() {
    let subsystem = subsystem();
    let mut admin = enabled(&subsystem, NQN);
    feature(&mut admin, admin::SET_FEATURES, 0x06, 0).unwrap();
    let mut old = try_io(&subsystem, &admin, 1).unwrap();
    assert_eq!(hold(&mut admin, 9), Reply::Pending);
    configure(&mut admin, 0);
    assert!(!old.alive(NOW) && admin.alive(NOW));
    assert_eq!(get(&mut admin, 0x1c), 1, "its thread may have begun something");
    let mut left = old.end(vec![0, 2, 2], NOW).unwrap();
    left.done(2);
    assert_eq!(get(&mut admin, 0x1c), 1, "a device has something");
    left.done(0);
    assert_eq!(get(&mut admin, 0x1c), 0);
    assert_eq!(admin.completions(NOW), [(9, Status::ABORT_REQUESTED, 0)]);
    assert_eq!(identify(&mut admin, 1, 0), Err(Status::SEQUENCE_ERROR));
    configure(&mut admin, ENABLE);
    assert_eq!(feature(&mut admin, admin::GET_FEATURES, 0x06, 0), Ok(1));
    assert!(!old.alive(NOW), "a queue does not outlive the reset");
    let new = try_io(&subsystem, &admin, 1).unwrap();
    drop(old);
    let twice = try_io(&subsystem, &admin, 1).err().unwrap();
    let taken = Status::SEQUENCE_ERROR.retry();
    assert_eq!(twice.status, taken, "the old one took no other's place along");
    assert!(new.alive(NOW));
}

#[test]
fn a_host_that_starts_over_and_over_has_no_more_flushes_under_way_than_one_that_does_not() {
    let subsystem = subsystem();
    let mut admin = enabled(&subsystem, NQN);
    let mut begun = 0;
    for _ in 0..100 {
        configure(&mut admin, ENABLE | 1 << 14);
        begun += admin.begin_flushes().len();
        configure(&mut admin, 0);
        configure(&mut admin, ENABLE);
    }
    assert_eq!(begun, 3);
    // The last shutdown gets flushes of its own, begun when the old ones are done.
    configure(&mut admin, ENABLE | 1 << 14);
    (0..3).for_each(|_| admin.flushed(Status::SUCCESS));
    assert_eq!(get(&mut admin, 0x1c), 0b0101);
    assert_eq!(admin.begin_flushes().len(), 3);
    (0..3).for_each(|_| admin.flushed(Status::SUCCESS));
    assert_eq!(get(&mut admin, 0x1c), 0b1001);
}

#[test]
fn silence_ends_an_association() {
    let subsystem = subsystem();
    let mut admin = admin_of(&subsystem, NQN, 1500);
    configure(&mut admin, ENABLE);
    let io = try_io(&subsystem, &admin, 1).unwrap();
    let at = |seconds| Nanos(NOW.0 + Nanos::from_secs(seconds).0);
    assert!(admin.alive(at(1)) && !admin.alive(at(2)), "1.5 s is rounded up to 2 s");
    admin.command(&Sqe::new(admin::KEEP_ALIVE, 1), &[], at(1));
    assert!(admin.alive(at(2)) && !admin.alive(at(3)));
    assert_eq!(feature(&mut admin, admin::GET_FEATURES, 0x0f, 0), Ok(2000));
    assert_eq!(feature(&mut admin, admin::SET_FEATURES, 0x0f, 0), Ok(0));
    assert!(admin.alive(at(1 << 20)));
    drop(admin);
    assert!(!io.alive(NOW) && subsystem.controllers() == 0);
    // Without a timer, discovery controllers still do not wait for ever.
    let discovery = enabled(&subsystem, ebb_nvme::fabrics::DISCOVERY_NQN);
    assert!(discovery.alive(at(119)) && !discovery.alive(at(120)));
}
