//! Whatever hosts send: nothing panics, replies stay within bounds, numbers stay unique.

use ebb_nvme::command::io;
use proptest::prelude::*;
use zerocopy::FromBytes;

use super::*;

/// An entry that is random, or close to what is understood.
fn entry() -> impl Strategy<Value = Sqe> {
    let opcodes = prop::sample::select(vec![
        FABRICS,
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::KEEP_ALIVE,
        io::READ,
        io::WRITE,
        io::COMPARE,
        io::WRITE_ZEROES,
        io::DATASET_MANAGEMENT,
    ]);
    let plausible = (
        opcodes,
        any::<u16>(),
        0_u32..9,
        0_u32..10_000,
        any::<bool>(),
        prop::array::uniform6(0_u32..300),
    )
        .prop_map(|(opcode, cid, nsid, length, here, dwords)| {
            let mut sqe = Sqe::new(opcode, cid);
            sqe.nsid = nsid.into();
            sqe.sgl_length = length.into();
            sqe.sgl_identifier = if here { sgl::IN_CAPSULE } else { sgl::TRANSPORT };
            (10..16).for_each(|at| sqe.set_cdw(at, dwords[at - 10]));
            sqe
        });
    let any = any::<[u8; 64]>().prop_map(|bytes| Sqe::read_from_bytes(&bytes).unwrap());
    prop_oneof![3 => plausible, 1 => any]
}

#[derive(Debug, Clone)]
enum Step {
    Connect { queue: u16, controller: u16, discovery: bool },
    Enable(usize),
    Admin(usize, Sqe),
    Io(usize, Sqe),
    DropAdmin(usize),
    DropIo(usize),
    Later(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0_usize..8;
    prop_oneof![
        (0_u16..5, 0_u16..9, any::<bool>()).prop_map(|(queue, controller, discovery)| {
            let controller = if queue == 0 { ANY_CONTROLLER } else { controller };
            Step::Connect { queue, controller, discovery }
        }),
        at.clone().prop_map(Step::Enable),
        (at.clone(), entry()).prop_map(|(at, sqe)| Step::Admin(at, sqe)),
        (at.clone(), entry()).prop_map(|(at, sqe)| Step::Io(at, sqe)),
        at.clone().prop_map(Step::DropAdmin),
        at.prop_map(Step::DropIo),
        (0_u64..200).prop_map(Step::Later),
    ]
}

fn command(admin: &mut AdminQueue, sqe: &Sqe, now: Nanos) -> Result<(), TestCaseError> {
    let direction = admin.direction(sqe);
    if let Reply::Done { status, data, .. } = admin.command(sqe, &[], now) {
        let most = direction.map_or(0, |direction| direction.to_host() as usize);
        prop_assert!(data.len() <= most, "{} bytes where {} fit", data.len(), most);
        prop_assert!(status.is_success() || data.is_empty());
    }
    prop_assert!(admin.completions(now).len() <= 2 * 4);
    Ok(())
}

fn no_doubles<T: Ord>(mut values: Vec<T>) -> bool {
    values.sort();
    values.windows(2).all(|pair| pair[0] != pair[1])
}

proptest! {
    #[test]
    fn any_sequence_keeps_the_promises(steps in prop::collection::vec(step(), 1..120)) {
        let subsystem = subsystem();
        let (mut admins, mut queues, mut now) = (Vec::new(), Vec::new(), NOW);
        for step in steps {
            match step {
                Step::Connect { queue, controller, discovery } => {
                    let nqn = if discovery { ebb_nvme::fabrics::DISCOVERY_NQN } else { NQN };
                    let data = data(nqn, HOST, controller);
                    let sqe = connect(queue, 31, u32::from(queue) * 700);
                    match subsystem.connect(&sqe, data.as_bytes(), now).map(|one| one.queue) {
                        Ok(Queue::Admin(admin)) => admins.push(admin),
                        Ok(Queue::Io(queue)) => queues.push((controller, queue)),
                        Err(refusal) => prop_assert!(!refusal.status.is_success()),
                    }
                }
                Step::Enable(at) => {
                    if let Some(admin) = admins.get_mut(at) {
                        configure(admin, ENABLE);
                    }
                }
                Step::Admin(at, sqe) => {
                    if let Some(admin) = admins.get_mut(at) {
                        command(admin, &sqe, now)?;
                    }
                }
                Step::Io(at, sqe) => {
                    if let Some((_, queue)) = queues.get(at) {
                        within_bounds(&subsystem, queue, &sqe)?;
                    }
                }
                Step::DropAdmin(at) if at < admins.len() => drop(admins.swap_remove(at)),
                Step::DropIo(at) if at < queues.len() => drop(queues.swap_remove(at)),
                Step::Later(seconds) => now = Nanos(now.0 + Nanos::from_secs(seconds).0),
                _ => {}
            }
            admins.retain(|admin: &AdminQueue| !admin.gave_way());
            prop_assert_eq!(subsystem.controllers(), admins.len());
            prop_assert!(admins.len() <= 8);
            prop_assert!(no_doubles(admins.iter().map(AdminQueue::controller_id).collect()));
            let alive = queues.iter().filter(|(_, queue)| queue.alive(now));
            prop_assert!(no_doubles(alive.map(|(id, queue)| (*id, queue.id())).collect()));
        }
    }
}

/// A plan reaches only blocks that exist, with exactly their data.
fn within_bounds(subsystem: &Subsystem, queue: &IoQueue, sqe: &Sqe) -> Result<(), TestCaseError> {
    let Ok((plan, direction)) = queue.command(sqe) else { return Ok(()) };
    let geometry = |namespace: usize| subsystem.namespaces()[namespace].device.geometry();
    let (namespace, lba, blocks) = match plan {
        Plan::Device { namespace, lba, blocks, .. } => (namespace, lba, blocks),
        Plan::Compare { namespace, lba, blocks, .. } => (namespace, lba, blocks),
        Plan::Deallocate { namespace, ranges: count } => {
            let data = vec![0xa5; direction.from_host() as usize];
            let geometry = geometry(namespace);
            if check_ranges(&data, count, geometry).is_ok() {
                for (lba, blocks) in (0..count).filter_map(|number| range_at(&data, number)) {
                    prop_assert!(geometry.contains(lba, blocks.into()));
                }
            }
            return Ok(());
        }
        Plan::Nothing => return Ok(()),
    };
    let geometry = geometry(namespace);
    prop_assert!(geometry.contains(lba, blocks.into()));
    let data = direction.from_host() + direction.to_host();
    let bytes = u64::from(blocks) * u64::from(geometry.block_size);
    let moves = matches!(sqe.opcode, io::READ | io::WRITE | io::COMPARE);
    prop_assert!(!moves || bytes == data.into());
    Ok(())
}
