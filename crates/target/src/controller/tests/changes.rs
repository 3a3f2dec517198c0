//! What changes while hosts are connected, and how they hear of it.

use std::net::SocketAddr;

use ebb_nvme::command::io;

use super::*;
use crate::device::Op;

const NOTICES: u32 = 1 << 8 | 1 << 11;
/// Dword 0 of the events: notices of the changed namespaces and of an ANA state.
const NAMESPACES: u64 = 0x04_0002;
const ANA: u64 = 0x0c_0302;

fn listening(subsystem: &Arc<Subsystem>) -> AdminQueue {
    let mut admin = enabled(subsystem, NQN);
    assert_eq!(u32_at(&identify(&mut admin, 1, 0).unwrap(), 92), NOTICES);
    assert_eq!(feature(&mut admin, admin::SET_FEATURES, 0x0b, NOTICES), Ok(0));
    assert_eq!(feature(&mut admin, admin::SET_FEATURES, 0x0b, 1 << 9), Err(Status::INVALID_FIELD));
    (1..=4).for_each(|cid| assert_eq!(hold(&mut admin, cid), Reply::Pending));
    assert_eq!(admin.completions(NOW), []);
    admin
}

fn events(admin: &mut AdminQueue) -> Vec<u64> {
    let ended = admin.completions(NOW);
    assert!(ended.iter().all(|(_, status, _)| status.is_success()));
    ended.iter().for_each(|(cid, ..)| assert_eq!(hold(admin, *cid), Reply::Pending));
    ended.into_iter().map(|(_, _, event)| event).collect()
}

/// The list of changed namespaces.
fn changed(admin: &mut AdminQueue) -> Vec<u32> {
    let page = log(admin, 0x04, 0, 4096).unwrap();
    (0..1024).map(|at| u32_at(&page, 4 * at)).take_while(|id| *id > 0).collect()
}

fn read(nsid: u32) -> Sqe {
    let mut sqe = to_host(io::READ, nsid, 512);
    sqe.set_cdw(12, 0);
    sqe
}

#[test]
fn hosts_hear_once_of_namespaces_that_come_and_go_until_they_have_read_which() {
    let subsystem = Subsystem::new(Config { places: 6, ..config() }).unwrap();
    let mut admin = listening(&subsystem);
    let queue = try_io(&subsystem, &admin, 1).unwrap();
    assert_eq!(u32_at(&identify(&mut admin, 1, 0).unwrap(), 516), 6);
    assert_eq!(queue.command(&read(5)).unwrap_err(), Status::INVALID_NAMESPACE);
    subsystem.add_namespace(namespace(5, 512, 8)).unwrap();
    assert_eq!(events(&mut admin), [NAMESPACES]);
    let plan = Plan::Device { namespace: 4, op: Op::Read { durable: false }, lba: 0, blocks: 1 };
    assert_eq!(queue.command(&read(5)).unwrap().0, plan);
    subsystem.take_namespace(2).unwrap();
    assert_eq!(events(&mut admin), [], "the log was not read");
    assert_eq!(changed(&mut admin), [2, 5]);
    assert_eq!((events(&mut admin), changed(&mut admin)), (vec![], vec![]));
    assert_eq!(queue.command(&read(2)).unwrap_err(), Status::INVALID_NAMESPACE);
    let active = identify(&mut admin, 2, 0).unwrap();
    assert_eq!([0, 4, 8, 12].map(|at| u32_at(&active, at)), [1, 3, 5, 0]);
    // A log that is read without ending the event, as by who only looks.
    subsystem.add_namespace(namespace(2, 512, 9)).unwrap();
    assert_eq!(events(&mut admin), [NAMESPACES]);
    let mut retaining = to_host(admin::GET_LOG_PAGE, u32::MAX, 8);
    retaining.set_cdw(10, 0x04 | 1 << 15 | 1 << 16);
    assert_eq!(u32_at(&done(&mut admin, &retaining).2, 0), 2);
    subsystem.take_namespace(5).unwrap();
    assert_eq!((events(&mut admin), changed(&mut admin)), (vec![], vec![2, 5]));
    // Who comes now knows all of it.
    assert_eq!(changed(&mut listening(&subsystem)), []);
    for (wrong, words) in [(7, "number of namespaces"), (3, "same identifier")] {
        let error = subsystem.add_namespace(namespace(wrong, 512, 8)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// One who has come by the second of the two ports.
fn by(port: usize, subsystem: &Arc<Subsystem>) -> (AdminQueue, IoQueue, SocketAddr) {
    let mut admin = listening(subsystem);
    let mut queue = try_io(subsystem, &admin, 1).unwrap();
    let local = subsystem.ports()[port].address;
    admin.reached_at(local);
    queue.reached_at(local);
    assert_eq!(feature(&mut admin, admin::SET_FEATURES, 0x0b, NOTICES), Ok(0));
    (1..=4).for_each(|cid| drop(hold(&mut admin, cid)));
    admin.completions(NOW);
    (admin, queue, local)
}

#[test]
fn a_path_is_refused_while_its_group_is_inaccessible_and_the_other_is_not() {
    let subsystem = subsystem();
    let (mut admin, queue, here) = by(1, &subsystem);
    let (mut other, elsewhere, _) = by(0, &subsystem);
    let id = identify(&mut admin, 1, 0).unwrap();
    assert_eq!((id[76], id[342], id[343]), (0b1011, 30, 0b101_0111));
    assert_eq!((u32_at(&id, 344), u32_at(&id, 348)), (3, 3));
    assert_eq!(u32_at(&identify(&mut admin, 0, 2).unwrap(), 92), 2);
    assert_eq!(u32_at(&identify(&mut admin, 8, 2).unwrap(), 4), 2);
    let statuses = |queue: &IoQueue| [1, 2].map(|id| queue.command(&read(id)).err());
    // A block of namespace 1 is not 512 bytes.
    let wrong = Some(Status::DATA_SGL_LENGTH_INVALID);
    for (state, status) in [
        (AnaState::Inaccessible, Some(Status::ANA_INACCESSIBLE)),
        (AnaState::Change, Some(Status::ANA_TRANSITION)),
        (AnaState::NonOptimized, None),
    ] {
        assert!(subsystem.set_ana(here, Some(2), state));
        assert_eq!(subsystem.ana(here, 2), Some(state));
        assert_eq!((statuses(&queue), statuses(&elsewhere)), ([wrong, status], [wrong, None]));
        assert_eq!((events(&mut admin), events(&mut other)), (vec![ANA], vec![]));
        let page = log(&mut admin, 0x0c, 0, 16 + 3 * 36).unwrap();
        assert_eq!(u16_at(&page, 8), 3);
        let second = &page[16 + 36..];
        assert_eq!((u32_at(second, 0), u32_at(second, 4), u32_at(second, 32)), (2, 1, 2));
        assert_eq!((page[16 + 16], second[16]), (1, state as u8));
    }
    assert!(subsystem.set_ana(here, None, AnaState::Inaccessible));
    assert_eq!(statuses(&queue), [Some(Status::ANA_INACCESSIBLE); 2]);
    let field = Status::ANA_INACCESSIBLE.to_field();
    assert_eq!((field >> 9 & 7, field >> 1 & 0xff, field >> 15), (3, 2, 0), "worth another path");
    // Groups alone, without their namespaces (RGO).
    let mut groups = to_host(admin::GET_LOG_PAGE, u32::MAX, 80);
    groups.set_cdw(10, 0x0c | 1 << 8 | 19 << 16);
    let page = done(&mut admin, &groups).2;
    assert_eq!((u32_at(&page, 16 + 4), u32_at(&page, 48), page[64]), (0, 2, 3));
    for group in [0, 4] {
        assert!(!subsystem.set_ana(here, Some(group), AnaState::Change));
    }
    assert!(!subsystem.set_ana("10.9.9.9:1".parse().unwrap(), None, AnaState::Change));
}

#[test]
fn hosts_are_allowed_and_expelled() {
    let subsystem = subsystem();
    let mut admin = enabled(&subsystem, NQN);
    let queue = try_io(&subsystem, &admin, 1).unwrap();
    assert_eq!(subsystem.connected(), [(HOST.to_owned(), 1)].into());
    subsystem.set_allowed_hosts(Some(vec![])).unwrap();
    assert!(admin.alive(NOW) && queue.alive(NOW), "who is there stays");
    assert_eq!((subsystem.expel("nqn.2026-01.org.example:none"), subsystem.expel(HOST)), (0, 1));
    assert!(!admin.alive(NOW) && !queue.alive(NOW));
    let data = data(NQN, HOST, ANY_CONTROLLER);
    let again = || subsystem.connect(&connect(0, 31, 0), data.as_bytes(), NOW).map(drop);
    assert_eq!(again().unwrap_err().status, Status::CONNECT_INVALID_HOST);
    subsystem.set_allowed_hosts(Some(vec![HOST.to_owned()])).unwrap();
    again().unwrap();
    assert!(subsystem.set_allowed_hosts(Some(vec!["x".to_owned()])).is_err());
    configure(&mut admin, 0);
}
