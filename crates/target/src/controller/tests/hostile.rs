//! Hosts that get it wrong, on purpose or not.

use ebb_nvme::fabrics::Connect;

use super::*;

fn refusal(subsystem: &Arc<Subsystem>, sqe: &Sqe, data: &ConnectData) -> (Status, u32) {
    let refusal = subsystem.connect(sqe, data.as_bytes(), NOW).err().unwrap();
    (refusal.status, refusal.result)
}

#[test]
fn connect_says_what_is_wrong_and_where() {
    let subsystem = subsystem();
    let good = data(NQN, HOST, ANY_CONTROLLER);
    let invalid = |offset: u32| (Status::CONNECT_INVALID, offset);
    let in_data = |offset: u32| invalid(offset | 1 << 16);
    let of = |sqe: &Sqe, data: &ConnectData| refusal(&subsystem, sqe, data);
    let mut format = connect(0, 31, 0);
    format.set_cdw(10, 1);
    assert_eq!(of(&format, &good).0, Status::CONNECT_FORMAT);
    assert_eq!(of(&connect(0, 0, 0), &good), invalid(44));
    assert_eq!(of(&connect(0, 128, 0), &good), invalid(44));
    assert_eq!(of(&connect(0, 31, 0), &data("nqn.2026-01.x", HOST, 0xffff)), in_data(256));
    assert_eq!(of(&connect(0, 31, 0), &data(NQN, HOST, 1)), in_data(16));
    assert_eq!(of(&connect(1, 31, 0), &data(NQN, HOST, 1)), in_data(16));
    let endless = ConnectData { subsystem_nqn: [b'n'; 256], ..good };
    assert_eq!(of(&connect(0, 31, 0), &endless), in_data(256));
    let endless = ConnectData { host_nqn: [b'n'; 256], ..data(NQN, HOST, ANY_CONTROLLER) };
    assert_eq!(of(&connect(0, 31, 0), &endless), in_data(512));
    for length in [0, 1023, 1025] {
        let refusal = subsystem.connect(&connect(0, 31, 0), &vec![0; length], NOW).err().unwrap();
        assert_eq!(refusal.status, Status::DATA_SGL_LENGTH_INVALID);
    }
    assert_eq!(subsystem.controllers(), 0);
}

#[test]
fn only_allowed_hosts_connect_or_see_the_subsystem() {
    let allowed_hosts = Some(vec!["nqn.2026-01.org.example:friend".to_owned()]);
    let subsystem = Subsystem::new(Config { allowed_hosts, ..config() }).unwrap();
    let stranger = data(NQN, HOST, ANY_CONTROLLER);
    assert_eq!(refusal(&subsystem, &connect(0, 31, 0), &stranger).0, Status::CONNECT_INVALID_HOST);
    let mut discovery = enabled(&subsystem, ebb_nvme::fabrics::DISCOVERY_NQN);
    let page = log(&mut discovery, 0x70, 0, 3072).unwrap();
    assert_eq!((u64_at(&page, 8), page[1024 + 2], page[2048 + 2]), (2, 3, 3));
    let friend = data(NQN, "nqn.2026-01.org.example:friend", ANY_CONTROLLER);
    assert!(subsystem.connect(&connect(0, 31, 0), friend.as_bytes(), NOW).is_ok());
}

#[test]
fn queues_belong_to_the_host_that_made_the_controller() {
    let subsystem = subsystem();
    let mut admin = admin_of(&subsystem, NQN, 0);
    let early = try_io(&subsystem, &admin, 1).err().unwrap();
    assert_eq!(early.status, Status::SEQUENCE_ERROR.retry(), "before it is enabled");
    configure(&mut admin, ENABLE);
    let good = data(NQN, HOST, admin.controller_id());
    let of = |data: &ConnectData| refusal(&subsystem, &connect(1, 127, 0), data);
    let wrong = |offset: u32| (Status::CONNECT_INVALID, offset | 1 << 16);
    assert_eq!(of(&ConnectData { host_id: [8; 16], ..good }), wrong(0));
    let other = data(NQN, "nqn.2026-01.org.example:other", admin.controller_id());
    assert_eq!(of(&other), wrong(512));
    let discovery = data(ebb_nvme::fabrics::DISCOVERY_NQN, HOST, admin.controller_id());
    assert_eq!(of(&discovery), wrong(256));
    let queue = try_io(&subsystem, &admin, 1).unwrap();
    let twice = try_io(&subsystem, &admin, 1).err().unwrap();
    assert_eq!(twice.status, Status::SEQUENCE_ERROR.retry());
    drop(queue);
    let _again = try_io(&subsystem, &admin, 1).unwrap();
    // The number of queues is settled once there are any.
    let settled = feature(&mut admin, admin::SET_FEATURES, 0x07, 0);
    assert_eq!(settled, Err(Status::SEQUENCE_ERROR));
    drop(admin);
    assert_eq!(of(&good), wrong(16), "its controller is gone");
}

#[test]
fn there_are_only_so_many_controllers_and_their_identifiers_differ() {
    let subsystem = subsystem();
    let mut all: Vec<_> = (0..4).map(|_| admin_of(&subsystem, NQN, 0)).collect();
    let full = refusal(&subsystem, &connect(0, 31, 0), &data(NQN, HOST, ANY_CONTROLLER));
    assert_eq!(full.0, Status::CONNECT_BUSY);
    // Hosts that look around do not keep others from their data.
    all.push(enabled(&subsystem, ebb_nvme::fabrics::DISCOVERY_NQN));
    let mut ids: Vec<_> = all.iter().map(AdminQueue::controller_id).collect();
    ids.dedup();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
    all.remove(1);
    assert_eq!(admin_of(&subsystem, NQN, 0).controller_id(), 6, "not the one just freed");
}

fn connect_at(subsystem: &Arc<Subsystem>, host: &str, now: Nanos) -> Option<AdminQueue> {
    connect_to(subsystem, NQN, host, now)
}

fn connect_to(subsystem: &Arc<Subsystem>, nqn: &str, host: &str, now: Nanos) -> Option<AdminQueue> {
    let data = data(nqn, host, ANY_CONTROLLER);
    match subsystem.connect(&connect(0, 31, 0), data.as_bytes(), now) {
        Ok(Connected { queue: Queue::Admin(admin), .. }) => Some(admin),
        _ => None,
    }
}

#[test]
fn controllers_that_are_never_enabled_lock_nobody_out() {
    let subsystem = subsystem();
    let idle: Vec<_> = (0..4).map(|_| connect_at(&subsystem, HOST, NOW).unwrap()).collect();
    let soon = NOW + Nanos::from_secs(4);
    assert!(connect_at(&subsystem, HOST, soon).is_none(), "they are given time");
    let later = NOW + Nanos::from_secs(5);
    let newcomer = connect_at(&subsystem, HOST, later).unwrap();
    assert_eq!(idle.iter().filter(|one| !one.alive(later)).count(), 1);
    assert_eq!(subsystem.controllers(), 4);
    drop(idle);
    assert_eq!(subsystem.controllers(), 1, "the newcomer's is its own");
    // Alone it ends after two minutes, whatever else its host sends.
    let mut newcomer = newcomer;
    let end = later + Nanos::from_secs(120);
    newcomer.command(&Sqe::new(admin::KEEP_ALIVE, 1), &[], end - Nanos(1));
    assert!(newcomer.alive(end - Nanos(1)) && !newcomer.alive(end));
}

#[test]
fn a_host_that_holds_more_than_half_of_the_controllers_gives_way_to_others() {
    let subsystem = subsystem();
    let mut greedy: Vec<_> = (0..4).map(|_| enabled(&subsystem, NQN)).collect();
    assert!(connect_at(&subsystem, HOST, NOW).is_none(), "not to itself");
    let others = ["nqn.2026-01.org.example:a", "nqn.2026-01.org.example:b"];
    let others = others.map(|host| connect_at(&subsystem, host, NOW).unwrap());
    assert!(connect_at(&subsystem, "nqn.2026-01.org.example:c", NOW).is_none());
    greedy.retain(|one| one.alive(NOW));
    assert_eq!((greedy.len(), subsystem.hosts()), (2, 3));
    assert!(others.iter().all(|one| one.alive(NOW)));
}

/// Who asks what there is needs no key, so nobody's name can keep others from asking.
#[test]
fn discovery_controllers_give_way_to_hosts_that_have_fewer() {
    let (subsystem, nqn) = (subsystem(), ebb_nvme::fabrics::DISCOVERY_NQN);
    let at = |second: u64| NOW + Nanos::from_secs(second);
    let ask = |host: &str, second| {
        let mut admin = connect_to(&subsystem, nqn, host, at(second))?;
        configure(&mut admin, ENABLE);
        Some(admin)
    };
    let names = ["a", "b"].map(|name| format!("nqn.2026-01.org.example:{name}"));
    let mut strangers: Vec<_> =
        (0..4).map(|count| ask(&names[count % 2], count as u64).unwrap()).collect();
    let own = ask(HOST, 5).unwrap();
    strangers.retain(|one| one.alive(at(5)));
    assert_eq!(strangers.len(), 3, "not half of them under one name, and one gave way");
    for count in 0..20 {
        strangers.extend(ask(&names[count % 2], 6));
        assert!(own.alive(at(6)), "who has the fewest stays");
    }
    assert!(ask("nqn.2026-01.org.example:c", 6).is_some() && own.alive(at(6)));
}

#[test]
fn an_opcode_that_does_not_exist_asks_for_no_data() {
    let subsystem = subsystem();
    let admin = enabled(&subsystem, NQN);
    let mut sqe = Sqe::new(0x81, 1); // From the host, by its two lowest bits.
    (sqe.sgl_identifier, sqe.sgl_length) = (sgl::TRANSPORT, 4096.into());
    assert_eq!(admin.direction(&sqe), Err(Status::INVALID_OPCODE));
}

#[test]
fn a_target_on_all_addresses_is_where_its_host_found_it() {
    let addresses = ["0.0.0.0:4420", "[::]:4421", "10.1.1.1:4422"];
    let port = |one: &str| one.parse::<SocketAddr>().unwrap().into();
    let subsystem =
        Subsystem::new(Config { ports: addresses.map(port).to_vec(), ..config() }).unwrap();
    let mut discovery = enabled(&subsystem, ebb_nvme::fabrics::DISCOVERY_NQN);
    discovery.reached_at("[::ffff:192.168.7.3]:8009".parse().unwrap());
    let page = log(&mut discovery, 0x70, 0, 1024 * 7).unwrap();
    let entry = |number: usize| &page[1024 * (number + 1)..][..1024];
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    let found: Vec<_> = (0..3)
        .map(|number| (text(&entry(number)[512..768]), text(&entry(number)[32..64])))
        .collect();
    let expected = [("192.168.7.3", "4420"), ("192.168.7.3", "4421"), ("10.1.1.1", "4422")];
    assert_eq!(found, expected.map(|(address, port)| (address.to_owned(), port.to_owned())));
}

#[test]
fn commands_out_of_order_or_place_are_refused() {
    let subsystem = subsystem();
    let mut admin = admin_of(&subsystem, NQN, 0);
    assert_eq!(identify(&mut admin, 1, 0), Err(Status::SEQUENCE_ERROR));
    assert_ne!(hold(&mut admin, 1), Reply::Pending);
    configure(&mut admin, ENABLE);
    assert_eq!(done(&mut admin, &connect(0, 31, 0)).0, Status::SEQUENCE_ERROR);
    let (status, _) = property(&mut admin, fabrics::DISCONNECT, 0, 0);
    assert_eq!(status, Status::INVALID_QUEUE_TYPE);
    assert_eq!(property(&mut admin, fabrics::PROPERTY_GET, 0x04, 0).0, Status::INVALID_FIELD);
    assert_eq!(property(&mut admin, fabrics::PROPERTY_SET, 0x1c, 0).0, Status::INVALID_FIELD);
    assert_eq!(done(&mut admin, &Sqe::new(0x80, 1)).0, Status::INVALID_OPCODE);
    for cid in 0..4 {
        assert_eq!(hold(&mut admin, cid), Reply::Pending);
    }
    let Reply::Done { status, .. } = hold(&mut admin, 4) else { panic!("a fifth was held") };
    assert_eq!(status, Status::ASYNC_EVENT_LIMIT);
    // Abort of a held request, of one that is not there, of one on another queue.
    let mut abort = Sqe::new(admin::ABORT, 20);
    for (queue, cid, missed) in [(0, 2, 0), (0, 2, 1), (1, 3, 1)] {
        abort.set_cdw(10, queue | cid << 16);
        assert_eq!(done(&mut admin, &abort), (Status::SUCCESS, missed, vec![]));
    }
    assert_eq!(admin.completions(NOW), [(2, Status::ABORT_REQUESTED, 0)]);
    let errors = log(&mut admin, 0x01, 0, 64 * 3).unwrap();
    assert_eq!([0, 64, 128].map(|at| u64_at(&errors, at)), [8, 7, 6]);
    assert_eq!(u16_at(&errors, 12), Status::ASYNC_EVENT_LIMIT.to_field());
}

#[test]
fn flow_control_is_the_hosts_choice() {
    let subsystem = subsystem();
    let data = data(NQN, HOST, ANY_CONTROLLER);
    let mut sqe = connect(0, 31, 0);
    assert!(subsystem.connect(&sqe, data.as_bytes(), NOW).unwrap().flow_control);
    sqe.set_cdw(11, 31 | u32::from(Connect::NO_FLOW_CONTROL) << 16);
    let connected = subsystem.connect(&sqe, data.as_bytes(), NOW).unwrap();
    assert!(!connected.flow_control && connected.depth == 32);
}

/// Where hosts have keys, whoever takes the name of one only takes places of others without.
#[test]
fn who_has_not_shown_who_he_is_gives_way_first() {
    struct Nobody;
    impl Secrets for Nobody {
        fn requires(&self, host: &str) -> bool {
            host == HOST
        }
        fn keys(&self, _host: &str) -> Result<Keys, String> {
            Err("there are none".to_owned())
        }
    }
    let authentication = Some(Rules::new(Arc::new(Nobody)));
    let allowed_hosts = Some(vec!["nqn.2026-01.org.example:friend".to_owned()]);
    let config = Config { authentication, allowed_hosts, max_controllers: 4, ..config() };
    let subsystem = Subsystem::new(config).unwrap();
    let connects = |host: &str| {
        let data = data(NQN, host, ANY_CONTROLLER);
        let connected = subsystem.connect(&connect(0, 31, 0), data.as_bytes(), NOW).unwrap();
        assert_eq!(connected.authentication.is_some(), host == HOST);
        connected
    };
    let friend = connects("nqn.2026-01.org.example:friend");
    let strangers: Vec<_> = (0..5).map(|_| connects(HOST)).collect();
    assert!(friend.queue.alive(NOW));
    let alive = strangers.iter().map(|one| one.queue.alive(NOW));
    assert_eq!(alive.collect::<Vec<_>>(), [false, false, true, true, true]);
    assert_eq!(subsystem.controllers(), 4);
}
