//! Features, and the events that health raises.

use ebb_nvme::log::warning;

use super::*;
use crate::device;

#[test]
fn power_states_are_described_and_set() {
    let subsystem = subsystem();
    let mut admin = enabled(&subsystem, NQN);
    let id = identify(&mut admin, 1, 0).unwrap();
    assert_eq!(id[263], 2);
    // 25 W in units of 10 mW, 3.5 W in units of 0.1 mW.
    assert_eq!((u16_at(&id, 2048), id[2051]), (2500, 0));
    assert_eq!((u16_at(&id, 2048 + 64), id[2048 + 67]), (35_000, 1));
    assert_eq!((u32_at(&id, 2052), u32_at(&id, 2056)), (100, 200));
    assert_eq!(id[2060..2064], [0, 0, 1, 1]);
    assert_eq!((u16_at(&id, 2064), id[2066]), (15_000, 1 << 6));
    assert!(id[2048 + 96..3072].iter().all(|byte| *byte == 0));
    assert_eq!(feature(&mut admin, admin::SET_FEATURES, 0x02, 2 | 1 << 5), Ok(0));
    assert_eq!(feature(&mut admin, admin::GET_FEATURES, 0x02, 0), Ok(2 | 1 << 5));
    assert_eq!(
        feature(&mut admin, admin::SET_FEATURES, 0x02, 3),
        Err(Status::INVALID_FIELD),
        "there is no such state"
    );
    assert_eq!(feature(&mut admin, admin::GET_FEATURES, 0x02, 0), Ok(2 | 1 << 5));
}

#[test]
fn a_power_state_ends_with_a_reset_of_the_controller_that_has_set_it() {
    let subsystem = subsystem();
    let mut first = enabled(&subsystem, NQN);
    let mut second = enabled(&subsystem, NQN);
    let set = |admin: &mut _, state: u32| {
        feature(admin, admin::SET_FEATURES, 0x02, state | 1 << 5).unwrap()
    };
    let is = |admin: &mut _| feature(admin, admin::GET_FEATURES, 0x02, 0).unwrap() & 0x1f;
    set(&mut first, 2);
    configure(&mut second, 0);
    configure(&mut second, ENABLE);
    assert_eq!(is(&mut second), 2, "another one's reset");
    configure(&mut first, 0);
    assert_eq!(is(&mut second), 0);
    configure(&mut first, ENABLE);
    assert_eq!(feature(&mut first, admin::GET_FEATURES, 0x02, 0), Ok(0), "with its hint");
    // As a host that is disconnected.
    set(&mut first, 1);
    drop(first);
    assert_eq!(is(&mut second), 0);
}

/// As a drive that is added to a subsystem without any, and taken away again.
#[test]
fn power_states_come_and_go() {
    let plant = Arc::new(Plant { takes_limit: true, ..Plant::default() });
    let subsystem = Subsystem::new(Config { power: Some(plant.clone()), ..config() }).unwrap();
    let mut admin = enabled(&subsystem, NQN);
    let state = |admin: &mut _, state| feature(admin, admin::SET_FEATURES, 0x02, state);
    let described = |admin: &mut _| {
        let id = identify(admin, 1, 0).unwrap();
        (id[263], u16_at(&id, 2048), u16_at(&id, 2048 + 32))
    };
    assert_eq!(described(&mut admin), (0, 0, 0));
    assert_eq!((state(&mut admin, 0), state(&mut admin, 1)), (Ok(0), Err(Status::INVALID_FIELD)));
    *plant.states.lock().unwrap() = [25.0, 12.0].map(power_state).to_vec();
    assert_eq!(described(&mut admin), (1, 2500, 1200));
    assert_eq!((state(&mut admin, 1), state(&mut admin, 2)), (Ok(0), Err(Status::INVALID_FIELD)));
    assert_eq!(feature(&mut admin, admin::SET_FEATURES, 0x23, 2 << 16 | 1_300), Ok(0));
    plant.states.lock().unwrap().clear();
    assert_eq!(described(&mut admin), (0, 0, 0));
    assert_eq!(state(&mut admin, 1), Err(Status::INVALID_FIELD));
    drop(admin);
    assert_eq!((plant.get(), *plant.limit.lock().unwrap()), (0, None), "of who has set them");
}

/// A subsystem that takes a power limit.
fn limited() -> (Arc<Plant>, Arc<Subsystem>) {
    let plant = Arc::new(Plant { takes_limit: true, ..plant() });
    (plant.clone(), Subsystem::new(Config { power: Some(plant), ..config() }).unwrap())
}

#[test]
fn a_power_limit_is_set_and_read_where_there_is_one() {
    let (set, get) = (admin::SET_FEATURES, admin::GET_FEATURES);
    let mut without = enabled(&subsystem(), NQN);
    assert_eq!(u32_at(&identify(&mut without, 1, 0).unwrap(), 96) & 1 << 20, 0);
    assert_eq!(feature(&mut without, get, 0x23, 0), Err(Status::INVALID_FIELD));
    assert_eq!(feature(&mut without, set, 0x23, 2 << 16 | 1_000), Err(Status::INVALID_FIELD));

    let (plant, subsystem) = limited();
    let mut admin = enabled(&subsystem, NQN);
    let mut other = enabled(&subsystem, NQN);
    assert_eq!(u32_at(&identify(&mut admin, 1, 0).unwrap(), 96), 1 | 1 << 20);
    let effects = log(&mut admin, 0x12, 0, 1024).unwrap();
    assert_eq!(u32_at(&effects, 4 * 0x23), u32_at(&effects, 4 * 2), "of the subsystem");
    let limit = || plant.limit.lock().unwrap().map(|power| power.0);
    let lowest = 1 << 16 | 35_000;
    // In either scale; the lowest that leaves a state (3.5 W); above all; none.
    for (value, power) in [
        (2 << 16 | 1_234, Some(12.34)),
        (lowest, Some(3.5)),
        (2 << 16 | 0xffff, Some(655.35)),
        (2 << 16, None),
        (2 << 16 | 2_000, Some(20.0)),
        (0, None),
    ] {
        assert_eq!(feature(&mut admin, set, 0x23, value), Ok(0));
        assert_eq!((feature(&mut other, get, 0x23, 0), limit()), (Ok(value), power));
    }
    let mut sqe = Sqe::new(set, 3);
    sqe.set_cdw(10, 0x23);
    sqe.set_cdw(13, lowest);
    assert!(done(&mut admin, &sqe).0.is_success());
    assert_eq!(limit(), Some(3.5), "as nvme-cli 3 has it");
    for (value, status) in [
        (1 << 16 | 34_999, Status::INVALID_POWER_LIMIT),
        (2 << 16 | 349, Status::INVALID_POWER_LIMIT),
        (1_000, Status::INVALID_FIELD),
        (3 << 16 | 1_000, Status::INVALID_FIELD),
        (1 << 18 | 2 << 16 | 1_000, Status::INVALID_FIELD),
    ] {
        assert_eq!(feature(&mut admin, set, 0x23, value), Err(status), "{value:#x}");
        assert_eq!((feature(&mut admin, get, 0x23, 0), limit()), (Ok(lowest), Some(3.5)));
    }
}

#[test]
fn a_power_limit_ends_with_a_reset_of_the_controller_that_has_set_it() {
    let (plant, subsystem) = limited();
    let mut first = enabled(&subsystem, NQN);
    let mut second = enabled(&subsystem, NQN);
    let set = |admin: &mut _| feature(admin, admin::SET_FEATURES, 0x23, 2 << 16 | 1_000).unwrap();
    let limit = || plant.limit.lock().unwrap().map(|power| power.0);
    // The state of another is not its matter.
    feature(&mut second, admin::SET_FEATURES, 0x02, 1).unwrap();
    set(&mut first);
    configure(&mut second, 0);
    configure(&mut second, ENABLE);
    assert_eq!((limit(), plant.get()), (Some(10.0), 0), "another one's reset");
    configure(&mut first, 0);
    assert_eq!(limit(), None);
    assert_eq!(feature(&mut second, admin::GET_FEATURES, 0x23, 0), Ok(0));
    configure(&mut first, ENABLE);
    set(&mut first);
    drop(first);
    assert_eq!(limit(), None);
}

/// Sets a feature with data.
fn set_with(admin: &mut AdminQueue, id: u32, value: u32, data: &[u8]) -> Status {
    let mut sqe = to_host(admin::SET_FEATURES, 0, data.len() as u32);
    sqe.flags = 0x40;
    sqe.sgl_identifier = 1;
    sqe.set_cdw(10, id);
    sqe.set_cdw(11, value);
    assert!(takes_data(&sqe));
    match admin.command(&sqe, data, NOW) {
        Reply::Done { status, .. } => status,
        Reply::Pending => panic!("held"),
    }
}

#[test]
fn idle_states_are_allowed_by_a_table() {
    let mut without = enabled(&subsystem(), NQN);
    assert_eq!(identify(&mut without, 1, 0).unwrap()[265], 0);
    assert_eq!(feature(&mut without, admin::GET_FEATURES, 0x0c, 0), Err(Status::INVALID_FIELD));

    let idle =
        |exit_latency| PowerState { is_operational: false, exit_latency, ..power_state(1.0) };
    let states = vec![power_state(25.0), power_state(12.0), idle(500), idle(20_000)];
    let plant = Arc::new(Plant { states: Mutex::new(states), ..Plant::default() });
    let subsystem = Subsystem::new(Config { power: Some(plant.clone()), ..config() }).unwrap();
    let mut admin = enabled(&subsystem, NQN);
    let mut other = enabled(&subsystem, NQN);
    assert_eq!(identify(&mut admin, 1, 0).unwrap()[265], 1);
    let get = |admin: &mut _| {
        let mut sqe = to_host(admin::GET_FEATURES, 0, 256);
        sqe.set_cdw(10, 0x0c);
        done(admin, &sqe)
    };
    let longest = || plant.idle.load(Ordering::Relaxed);
    assert_eq!(get(&mut admin), (Status::SUCCESS, 0, vec![0; 256]));
    // As Linux makes it (`nvme_configure_apst`): from each state to the next deeper one.
    let table = |to: &[u64]| -> Vec<u8> {
        let entries = to.iter().map(|to| if *to == 0 { 0 } else { to << 3 | 50 << 8 });
        entries.chain(std::iter::repeat(0)).take(32).flat_map(u64::to_le_bytes).collect()
    };
    for (to, reaches) in [(&[2, 2, 3][..], 20_000), (&[2, 2, 0], 500), (&[0, 0, 0], 0)] {
        assert_eq!(set_with(&mut admin, 0x0c, 1, &table(to)), Status::SUCCESS);
        assert_eq!((get(&mut other), longest()), ((Status::SUCCESS, 1, table(to)), reaches));
    }
    for (data, status) in [
        (table(&[1]), Status::INVALID_FIELD), // It is no idle state.
        (table(&[4]), Status::INVALID_FIELD), // Nor is it a state.
        (table(&[2])[1..].to_vec(), Status::DATA_SGL_LENGTH_INVALID),
    ] {
        assert_eq!(set_with(&mut admin, 0x0c, 1, &data), status);
        assert_eq!(get(&mut admin).2, table(&[]));
    }
    for (is_on, reaches) in [(0, 0), (1, 20_000)] {
        set_with(&mut admin, 0x0c, is_on, &table(&[3]));
        let set = (Status::SUCCESS, u64::from(is_on), table(&[3]));
        assert_eq!((get(&mut admin), longest()), (set, reaches));
    }
    configure(&mut other, 0);
    assert_eq!(longest(), 20_000, "another one's reset");
    configure(&mut admin, 0);
    configure(&mut admin, ENABLE);
    assert_eq!((get(&mut admin).2, longest()), (vec![0; 256], 0));
}

#[test]
fn features_have_current_default_and_saved_values_and_capabilities() {
    let (_, subsystem) = limited();
    let mut admin = enabled(&subsystem, NQN);
    for id in super::super::features::ALL.into_iter().filter(|id| *id != 0x0c) {
        let id = u32::from(id);
        let mut get =
            |select: u32, value| feature(&mut admin, admin::GET_FEATURES, id | select << 8, value);
        if id != 0x81 {
            assert_eq!(get(0, 0), get(1, 0), "{id:#x} begins with its default");
        }
        assert_eq!(get(1, 0), get(2, 0), "{id:#x} cannot be saved");
        let changeable = u32::from(![0x01, 0x05, 0x81].contains(&id)) << 2;
        assert_eq!(get(3, 0), Ok(changeable), "{id:#x}");
        assert_eq!(get(4, 0), Err(Status::INVALID_FIELD));
        let saved = feature(&mut admin, admin::SET_FEATURES, id | 1 << 31, 0);
        assert_eq!(saved, Err(Status::FEATURE_NOT_SAVEABLE));
    }
    assert_eq!(feature(&mut admin, admin::GET_FEATURES, 0x0c, 0), Err(Status::INVALID_FIELD));
    let fixed = feature(&mut admin, admin::SET_FEATURES, 0x01, 0);
    assert_eq!(fixed, Err(Status::FEATURE_NOT_CHANGEABLE));
    let queues = feature(&mut admin, admin::SET_FEATURES, 0x07, 0x0009_0001);
    assert_eq!(queues, Ok(0x0001_0001));
    let too_many = feature(&mut admin, admin::SET_FEATURES, 0x07, 0xffff_0001);
    assert_eq!(too_many, Err(Status::INVALID_FIELD));
    assert_eq!(feature(&mut admin, admin::SET_FEATURES, 0x07, 0x00fe_00fe), Ok(0x0002_0002));
}

#[test]
fn hosts_are_told_who_they_are() {
    let subsystem = subsystem();
    let mut admin = enabled(&subsystem, NQN);
    let mut sqe = to_host(admin::GET_FEATURES, 0, 16);
    sqe.set_cdw(10, 0x81);
    assert_eq!(done(&mut admin, &sqe).0, Status::INVALID_FIELD);
    sqe.set_cdw(11, 1);
    assert_eq!(done(&mut admin, &sqe), (Status::SUCCESS, 0, vec![7; 16]));
}

#[test]
fn warnings_raise_one_event_until_the_log_is_read() {
    let plant = Arc::new(Plant { kelvins: 300.into(), ..Plant::default() });
    let config = Config { health: Some(plant.clone()), ..config() };
    let subsystem = Subsystem::new(config).unwrap();
    let mut admin = enabled(&subsystem, NQN);
    let later = |seconds| Nanos(NOW.0 + Nanos::from_secs(seconds).0);
    for cid in [1, 2] {
        assert_eq!(hold(&mut admin, cid), Reply::Pending);
    }
    plant.warning.store(1 << 2, Ordering::Relaxed);
    assert_eq!(admin.completions(later(0)), [], "not asked for");
    assert_eq!(feature(&mut admin, admin::SET_FEATURES, 0x0b, 0xff), Ok(0));
    assert_eq!(admin.completions(later(1)), [(1, Status::SUCCESS, 0x02_0001)]);
    // Too warm as well, by a threshold that the host sets.
    assert_eq!(feature(&mut admin, admin::SET_FEATURES, 0x04, 310), Ok(0));
    plant.kelvins.store(311, Ordering::Relaxed);
    assert_eq!(admin.completions(later(2)), [], "until the log is read");
    assert_eq!(log(&mut admin, 0x02, 0, 512).unwrap()[0], 1 << 1 | 1 << 2);
    assert_eq!(admin.completions(later(3)), [(2, Status::SUCCESS, 0x02_0101)]);
    // What lasts is not told twice; what comes back is.
    assert_eq!(hold(&mut admin, 3), Reply::Pending);
    log(&mut admin, 0x02, 0, 512).unwrap();
    assert_eq!(admin.completions(later(4)), []);
    plant.kelvins.store(309, Ordering::Relaxed);
    assert_eq!(admin.completions(later(5)), []);
    plant.kelvins.store(310, Ordering::Relaxed);
    assert_eq!(admin.completions(later(6)), [(3, Status::SUCCESS, 0x02_0101)]);
}

/// A device that can do without a part, and does.
struct Array(Mutex<device::Health>);

impl Device for Array {
    fn geometry(&self) -> Geometry {
        Geometry { block_size: 512, blocks: 64 }
    }
    fn describe(&self) -> String {
        "an array".to_owned()
    }
    fn health(&self) -> Option<device::Health> {
        Some(self.0.lock().unwrap().clone())
    }
    fn open(&self) -> std::io::Result<Box<dyn Channel>> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

#[test]
fn a_lost_member_warns_hosts() {
    let array = Arc::new(Array(Mutex::default()));
    let namespaces = vec![Namespace { device: array.clone(), ..namespace(1, 512, 64) }];
    let subsystem = Subsystem::new(Config::new(NQN, namespaces)).unwrap();
    let mut admin = enabled(&subsystem, NQN);
    assert_eq!(feature(&mut admin, admin::SET_FEATURES, 0x0b, 0xff), Ok(0));
    assert_eq!(hold(&mut admin, 1), Reply::Pending);
    assert_eq!(log(&mut admin, 0x02, 0, 512).unwrap()[0], 0);
    let name = "/srv/a".to_owned();
    array.0.lock().unwrap().failed.push(device::Failed { name, why: "it could not be written" });
    assert_eq!(admin.completions(NOW), [(1, Status::SUCCESS, 0x02_0001)], "reliability");
    assert_eq!(log(&mut admin, 0x02, 0, 512).unwrap()[0], warning::RELIABILITY);
    array.0.lock().unwrap().read_only = true;
    let warnings = log(&mut admin, 0x02, 0, 512).unwrap()[0];
    assert_eq!(warnings, warning::RELIABILITY | warning::READ_ONLY);
}

#[test]
fn retry_delays_are_obeyed_by_hosts_that_say_so_until_the_next_reset() {
    let subsystem = subsystem();
    let mut admin = enabled(&subsystem, NQN);
    let queue = try_io(&subsystem, &admin, 1).ok().unwrap();
    assert_eq!(u16_at(&identify(&mut admin, 1, 0).unwrap(), 128), 61);
    let set = |admin: &mut AdminQueue, value: u8, length: usize| {
        let mut data = vec![0; length];
        data[0] = value;
        set_with(admin, 0x16, 0, &data)
    };
    assert!(!queue.retries_later());
    assert_eq!(set(&mut admin, 1, 256), Status::DATA_SGL_LENGTH_INVALID);
    assert_eq!(set(&mut admin, 2, 512), Status::INVALID_FIELD);
    assert_eq!(set(&mut admin, 1, 512), Status::SUCCESS);
    assert!(queue.retries_later());
    configure(&mut admin, 0);
    assert!(!queue.retries_later());
}
