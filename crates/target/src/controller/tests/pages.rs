//! What Identify and log pages say.

use super::*;

#[test]
fn controllers_say_what_they_can() {
    let subsystem = subsystem();
    let mut admin = enabled(&subsystem, NQN);
    let id = identify(&mut admin, 1, 0).unwrap();
    assert_eq!(id[4..24], *b"EBB0000000000001    ");
    assert!(id[24..64].starts_with(b"Ebb NVMe/TCP target  "));
    assert_eq!((id[76], id[77], id[111]), (11, 5, 1)); // Ports, controllers, ANA; 128 KiB; I/O.
    assert_eq!((u32_at(&id, 80), u32_at(&id, 96)), (0x0002_0000, 1));
    assert_eq!((id[258], id[259], id[260], id[261], id[262]), (3, 3, 3, 0x26, 63));
    assert_eq!((u16_at(&id, 320), id[512], id[513]), (10, 0x66, 0x44));
    assert_eq!((u32_at(&id, 516), u32_at(&id, 540)), (3, 3));
    assert_eq!((u16_at(&id, 520), id[525]), (0x1d, 5));
    assert_eq!(u32_at(&id, 536), 1 | 1 << 20 | 1 << 21);
    assert!(id[768..].starts_with(NQN.as_bytes()));
    assert_eq!((id[1802], id[1803], u16_at(&id, 1804)), (0, 1, 1));
}

#[test]
fn namespaces_say_what_they_are() {
    let subsystem = subsystem();
    let mut admin = enabled(&subsystem, NQN);
    let one = identify(&mut admin, 0, 1).unwrap();
    assert_eq!([0, 8, 16].map(|at| u64_at(&one, at)), [1024; 3]);
    assert_eq!((one[25], one[26], one[30], one[99]), (0, 0, 1, 0));
    assert_eq!((&one[104..120], &one[128..132]), (&[0x81; 16][..], &[0, 0, 12, 0][..]));
    let three = identify(&mut admin, 0, 3).unwrap();
    assert_eq!((three[99], three[130]), (1, 9));
    let ids = identify(&mut admin, 3, 2).unwrap();
    let expected = [&[2, 16, 0, 0][..], &[0x82; 16], &[3, 16, 0, 0], &[2; 16], &[4, 1, 0, 0, 0]];
    assert!(ids.starts_with(&expected.concat()) && ids[45..].iter().all(|byte| *byte == 0));
    for nsid in [0, 4, u32::MAX] {
        assert_eq!(identify(&mut admin, 0, nsid), Err(Status::INVALID_NAMESPACE), "{nsid}");
    }
    let rest = identify(&mut admin, 2, 2).unwrap();
    assert_eq!((u32_at(&rest, 0), u32_at(&rest, 4)), (3, 0));
    assert_eq!(identify(&mut admin, 2, u32::MAX - 1), Err(Status::INVALID_NAMESPACE));
    assert_eq!(u64_at(&identify(&mut admin, 0x1c, 0).unwrap(), 0), 1);
    assert_eq!(identify(&mut admin, 0x42, 0), Err(Status::INVALID_FIELD));
}

#[test]
fn gaps_between_namespaces_are_inactive_ones() {
    let namespaces = vec![namespace(7, 512, 8), namespace(2, 512, 8)];
    let subsystem = Subsystem::new(Config::new(NQN, namespaces)).unwrap();
    let mut admin = enabled(&subsystem, NQN);
    assert_eq!(identify(&mut admin, 0, 5), Ok(vec![0; 4096]));
    assert_eq!(identify(&mut admin, 3, 5), Err(Status::INVALID_NAMESPACE));
    assert_eq!(u64_at(&identify(&mut admin, 0, 7).unwrap(), 0), 8);
    assert_eq!(u32_at(&identify(&mut admin, 1, 0).unwrap(), 516), 7);
}

#[test]
fn pages_are_read_in_pieces_and_padded() {
    let subsystem = subsystem();
    let mut admin = enabled(&subsystem, NQN);
    let pages = log(&mut admin, 0x00, 0, 1024).unwrap();
    let listed: Vec<_> = (0..256).filter(|page| u32_at(&pages, 4 * page) & 1 == 1).collect();
    assert_eq!(listed, [0, 1, 2, 3, 4, 5, 0x0c, 0x12, 0x13]);
    for page in 0..=255 {
        let is_listed = listed.contains(&usize::from(page));
        assert_eq!(log(&mut admin, page, 0, 4).is_ok(), is_listed, "{page}");
    }
    let firmware = log(&mut admin, 0x03, 0, 512).unwrap();
    let version = format!("{:8}", env!("CARGO_PKG_VERSION"));
    assert_eq!((firmware[0], &firmware[8..16]), (1, version.as_bytes()));
    assert_eq!(log(&mut admin, 0x03, 8, 8).unwrap(), version.as_bytes());
    let beyond = log(&mut admin, 0x03, 508, 16).unwrap();
    assert_eq!(beyond, [0; 16]);
    assert_eq!(log(&mut admin, 0x03, 516, 4), Err(Status::INVALID_FIELD));
    assert_eq!(log(&mut admin, 0x03, 2, 4), Err(Status::INVALID_FIELD));
    assert_eq!(log(&mut admin, 0x03, u64::MAX - 3, 4), Err(Status::INVALID_FIELD));
    let features = log(&mut admin, 0x12, 0, 1024).unwrap();
    let listed: Vec<_> = (0..256).filter(|id| u32_at(&features, 4 * id) & 1 == 1).collect();
    assert_eq!(listed, [1, 2, 4, 5, 6, 7, 10, 11, 15, 0x16, 0x81]);
    // More asked for than there is room.
    let mut sqe = to_host(admin::GET_LOG_PAGE, u32::MAX, 4);
    sqe.set_cdw(10, 0x02 | 127 << 16);
    assert_eq!(done(&mut admin, &sqe).0, Status::DATA_SGL_LENGTH_INVALID);
}

#[test]
fn configurations_that_make_no_sense_are_refused() {
    type Change = fn(&mut Config);
    let refused = |change: Change| {
        let mut config = config();
        change(&mut config);
        Subsystem::new(config).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let cases: [(&str, Change); 11] = [
        ("qualified name", |config| config.nqn = "ebb".to_owned()),
        ("discovery", |config| config.nqn = ebb_nvme::fabrics::DISCOVERY_NQN.to_owned()),
        ("qualified name", |config| config.allowed_hosts = Some(vec!["x".to_owned()])),
        ("serial number", |config| config.serial = "0".repeat(21)),
        ("largest transfer", |config| config.max_transfer = 5000),
        ("queue depth", |config| config.max_queue_depth = 1),
        ("capsule", |config| config.in_capsule = 8),
        ("controllers", |config| config.max_controllers = 0),
        ("same identifier", |config| config.namespaces[0].id = 1),
        ("same UUID", |config| config.namespaces[0].uuid = [1; 16]),
        ("power states", |config| {
            let states = Mutex::new(vec![power_state(9.0); 33]);
            config.power = Some(Arc::new(Plant { states, ..Plant::default() }));
        }),
    ];
    for (word, change) in cases {
        assert!(refused(change).contains(word), "{word}: {}", refused(change));
    }
    assert_eq!(refused(|_| {}), "");
}
