//! Members that have no room left: what was acknowledged is still read, then and afterwards.

use std::sync::{Arc, Mutex};

use ebb_dataplane::device::{Device, Keeper, Raid5, Raid5Options};
use ebb_dataplane::wire::Status;

use super::shelf::{BLOCK, Client, Pages, Plate, Rig};

/// Blocks of the array.
const BLOCKS: usize = 6;
/// Writes to members that the work below needs at most.
const WRITES: u64 = 70;

fn open(plates: &[Plate], create: bool) -> Result<(Raid5, Keeper), String> {
    let named = plates.iter().enumerate();
    let named = named.map(|(at, plate)| (format!("m{at}"), Arc::new(plate.clone()) as _));
    let named: Vec<(String, Arc<dyn Device>)> = named.collect();
    let options =
        Raid5Options { chunk: BLOCK as u32, journal_slots: 4, create, ..Raid5Options::default() };
    Raid5::open_kept(named, &options).map_err(|error| error.to_string())
}

/// Every block is read, and as it was acknowledged or as a write that was refused left it.
fn check(array: &Raid5, keeper: &mut Keeper, may: &[Vec<u8>], case: (u64, u8)) {
    let mut client = Client::new(array);
    for (at, may) in may.iter().enumerate() {
        let value = client.read(at as u64, keeper);
        assert!(may.contains(&value), "{case:?}: block {at} is {value}, not {may:?}");
    }
}

/// Writes to one block after the other; those that end are acknowledged or refused for want of
/// room.
fn work(array: &Raid5, keeper: &mut Keeper, may: &mut [Vec<u8>], values: std::ops::Range<u8>) {
    let mut client = Client::new(array);
    for value in values {
        let at = usize::from(value) * 5 % BLOCKS;
        match client.try_write(at as u64, value, keeper) {
            Some(Status::SUCCESS) => may[at] = vec![value],
            Some(status) => {
                assert_eq!(status, Status::CAPACITY_EXCEEDED);
                may[at].push(value);
            }
            None => {
                // Its client goes away; what it wrote may or may not be there.
                may[at].push(value);
                client = Client::new(array);
            }
        }
        keeper.run_once();
    }
}

/// Whatever members run out of room, at whatever write, and even for what is there already: none
/// is lost for it, and with room again all is as before, at once or after a restart.
#[test]
fn no_room_takes_nothing_away_and_passes() {
    for full in 1..8u8 {
        for writes in 1..WRITES {
            let rig = Arc::<Mutex<Rig>>::default();
            let plates: Vec<_> =
                (0..3).map(|role| Plate::new(role, Pages::default(), &rig)).collect();
            let (mut array, mut keeper) = open(&plates, true).unwrap();
            let mut may = vec![vec![0]; BLOCKS];
            rig.lock().unwrap().full = Some((writes, full));
            work(&array, &mut keeper, &mut may, 1..13);
            check(&array, &mut keeper, &may, (writes, full));
            let told = array.health().unwrap().to_string();
            let refused = may.iter().any(|may| may.len() > 1);
            assert!(!refused || told.contains("no room on m"), "{told}");
            if writes % 2 == 0 {
                drop((array, keeper));
                match open(&plates, false) {
                    Ok((array, mut keeper)) => {
                        check(&array, &mut keeper, &may, (writes, full));
                    }
                    Err(error) => assert!(error.contains("no room; make some"), "{error}"),
                }
                rig.lock().unwrap().full = None;
                (array, keeper) = open(&plates, false).unwrap();
            }
            rig.lock().unwrap().full = None;
            (0..8).for_each(|_| _ = keeper.retry());
            let status = array.status();
            let well = (status.failed, status.dead, status.short) == (None, false, 0);
            assert!(well && !keeper.waits(), "{writes} {full}: {status:?}");
            check(&array, &mut keeper, &may, (writes, full));
            work(&array, &mut keeper, &mut may, 13..25);
            assert!(may.iter().all(|may| may.len() == 1), "{writes} {full}: {may:?}");
            keeper.stop();
            drop(array);
            let (array, mut keeper) = open(&plates, false).unwrap();
            assert!(array.status().was_clean);
            check(&array, &mut keeper, &may, (writes, full));
        }
    }
}
