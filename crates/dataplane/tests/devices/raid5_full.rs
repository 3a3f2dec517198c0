//! Members that have no room left: what was acknowledged is still read, then and afterwards.

use std::sync::{Arc, Mutex};

use ebb_dataplane::device::{Device, Keeper, Raid5, Raid5Options};

use crate::shelf::{BLOCK, Client, Pages, Plate, Rig};

/// Blocks of the array.
const BLOCKS: usize = 6;
/// Writes to members that the work below needs at most.
const WRITES: u64 = 70;

fn open(plates: &[Plate], words: &str) -> Result<(Raid5, Keeper), String> {
    let named = plates.iter().enumerate();
    let named = named.map(|(at, plate)| (format!("m{at}"), Arc::new(plate.clone()) as _));
    let named: Vec<(String, Arc<dyn Device>)> = named.collect();
    let options = Raid5Options {
        chunk: BLOCK as u32,
        journal_slots: 4,
        create: words == "create",
        degraded: words == "degraded",
        ..Raid5Options::default()
    };
    Raid5::open_kept(named, &options).map_err(|error| error.to_string())
}

/// Every block is read, and as it was acknowledged or as a write that failed left it.
fn check(array: &Raid5, keeper: &mut Keeper, may: &[Vec<u8>], case: (u64, u8)) {
    let mut client = Client::new(array);
    for (at, may) in may.iter().enumerate() {
        let value = client.read(at as u64, keeper);
        assert!(may.contains(&value), "{case:?}: block {at} is {value}, not {may:?}");
    }
}

/// Whatever members run out of room, at whatever write.
#[test]
fn no_room_takes_no_acknowledged_write_away() {
    for full in 1..8u8 {
        for writes in 1..WRITES {
            let rig = Arc::<Mutex<Rig>>::default();
            let plates: Vec<_> =
                (0..3).map(|role| Plate::new(role, Pages::default(), &rig)).collect();
            let (array, mut keeper) = open(&plates, "create").unwrap();
            let mut may = vec![vec![0]; BLOCKS];
            rig.lock().unwrap().full = Some((writes, full));
            let mut client = Client::new(&array);
            for value in 1..=12u8 {
                let at = usize::from(value) * 5 % BLOCKS;
                match client.write(at as u64, value, &mut keeper) {
                    true => may[at] = vec![value],
                    false => may[at].push(value),
                }
                keeper.run_once();
            }
            // With room on one member at least gone for good, the others are written further.
            let alone = full.count_ones() < 2;
            assert!(!alone || may.iter().all(|may| may.len() == 1), "{writes} {full}: {may:?}");
            check(&array, &mut keeper, &may, (writes, full));
            drop(client);
            keeper.stop();
            let failed = array.status().failed;
            drop(array);
            rig.lock().unwrap().full = None;
            let (array, mut keeper) = open(&plates, "").unwrap_or_else(|error| {
                assert!(failed.is_some() && error.contains("degraded"), "{error}");
                open(&plates, "degraded").unwrap()
            });
            check(&array, &mut keeper, &may, (writes, full));
        }
    }
}
