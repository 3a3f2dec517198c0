//! Members without room: files of members take theirs when they are opened, and a member whose
//! writes find none all the same has failed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use ebb_target::device::{Device, Keeper, Op, Raid5, Raid5Options, Spec, open};

use super::common;
use super::shelf::{BLOCK, Client, Pages, Plate, Rig};

/// Blocks of the array.
const BLOCKS: usize = 6;
/// Writes to members that the work below needs at least.
const WRITES: u64 = 60;

fn assemble(plates: &[Plate], options: Raid5Options) -> (Raid5, Keeper) {
    let named = plates.iter().enumerate();
    let named = named.map(|(at, plate)| (format!("m{at}"), Arc::new(plate.clone()) as _));
    let named: Vec<(String, Arc<dyn Device>)> = named.collect();
    let options = Raid5Options { chunk: BLOCK as u32, journal_slots: 4, ..options };
    Raid5::open_kept(named, &options).unwrap()
}

/// Every block is read, and as it was acknowledged or as a write that was refused left it.
fn check(array: &Raid5, keeper: &mut Keeper, may: &[Vec<u8>], case: (u64, u8)) {
    let mut client = Client::new(array);
    for (at, may) in may.iter().enumerate() {
        let value = client.read(at as u64, keeper);
        assert!(may.contains(&value), "{case:?}: block {at} is {value}, not {may:?}");
    }
}

/// Whatever members run out of room, one after the other, at whatever write: one is done without,
/// two stop the array, and what was acknowledged is there, then and with a new member.
#[test]
fn no_room_is_a_failed_member() {
    for full in 1..8u8 {
        for writes in 1..WRITES {
            let case = (writes, full);
            let rig = Arc::<Mutex<Rig>>::default();
            let mut plates: Vec<_> =
                (0..3).map(|role| Plate::new(role, Pages::default(), &rig)).collect();
            let create = Raid5Options { create: true, ..Raid5Options::default() };
            let (array, mut keeper) = assemble(&plates, create);
            let mut may = vec![vec![0]; BLOCKS];
            let roles = (0..3).filter(|role| full >> role & 1 == 1);
            let nth = |nth| writes * nth / u64::from(full.count_ones());
            rig.lock().unwrap().full = roles.zip((1..).map(nth)).collect();
            let mut client = Client::new(&array);
            for value in 1..13 {
                let at = usize::from(value) * 5 % BLOCKS;
                match client.write(at as u64, value, &mut keeper) {
                    true => may[at] = vec![value],
                    false => may[at].push(value),
                }
                keeper.run_once();
            }
            drop(client);
            check(&array, &mut keeper, &may, case);
            let health = array.health().unwrap();
            assert!(health.failed.iter().all(|failed| failed.why.contains("ENOSPC")), "{health}");
            assert!(!health.failed.is_empty(), "{case:?}: {health}");
            assert_eq!(health.read_only, health.failed.len() > 1, "{case:?}: {health}");
            let refused = may.iter().any(|may| may.len() > 1);
            assert!(!refused || full.count_ones() > 1 && health.read_only, "{case:?}: {health}");
            let failed = array.status().failed;
            drop((array, keeper));
            rig.lock().unwrap().full.clear();
            if let Some(role) = failed {
                plates[role] = Plate::new(role, Pages::default(), &rig);
            }
            let rebuild = Raid5Options { rebuild: true, ..Raid5Options::default() };
            let (array, mut keeper) = assemble(&plates, rebuild);
            while keeper.run_once() {}
            assert!(!array.health().unwrap().is_degraded());
            check(&array, &mut keeper, &may, case);
        }
    }
}

/// Whether all of a file has room on the disk.
fn is_whole(path: &Path) -> bool {
    let meta = std::fs::metadata(path).unwrap();
    meta.blocks() * 512 >= meta.len()
}

#[test]
fn files_of_members_have_room_for_all_they_may_hold() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a", "b", "c"].map(|name| folder.path().join(name));
    let [a, b, c] = &paths;
    let text = format!("raid5:{},{},{},journal=16", a.display(), b.display(), c.display());
    let opened = |rest: &str| open(&format!("{text}{rest}").parse::<Spec>().unwrap()).unwrap();
    let array = opened(",create,size=8MiB");
    assert!(paths.iter().all(|path| is_whole(path)));
    let mut client = common::Client::new(&*array);
    assert!(client.write(Op::Write { durable: true }, 100, &[3; 3 * 4096]).is_success());
    for op in [Op::Deallocate, Op::WriteZeroes { durable: true }] {
        let io = client.io(op, 103, (array.geometry().blocks - 103) as u32);
        assert!(client.run(io).status.is_success());
    }
    drop((client, array));
    assert!(paths.iter().all(|path| is_whole(path)), "nothing was given back");
    // A sparse copy from elsewhere.
    let (bytes, sparse) = (std::fs::read(b).unwrap(), std::fs::File::create(b).unwrap());
    sparse.set_len(bytes.len() as u64).unwrap();
    for (at, page) in (0..).step_by(4096).zip(bytes.chunks(4096)) {
        if page.iter().any(|byte| *byte != 0) {
            std::os::unix::fs::FileExt::write_all_at(&sparse, page, at).unwrap();
        }
    }
    drop(sparse);
    assert!(!is_whole(b));
    let array = opened("");
    assert!(is_whole(b));
    assert_eq!(common::Client::new(&*array).read(100, 3).unwrap(), [3; 3 * 4096]);
    drop(array);
    // A new member.
    std::fs::remove_file(c).unwrap();
    let array = opened(",rebuild,size=8MiB");
    assert!(is_whole(c));
    assert_eq!(common::Client::new(&*array).read(100, 3).unwrap(), [3; 3 * 4096]);
}

#[test]
fn an_array_that_cannot_be_made_leaves_no_files() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let room = rustix::fs::statvfs(folder.path()).unwrap();
    // So tmpfs refuses at once what is larger than it.
    assert!((1..1 << 30).contains(&room.f_blocks), "/dev/shm has a size below 4 TiB");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let made = |last: &str, size: &str| {
        let text = format!("raid5:{},{},{last},create,size={size}", path("a"), path("b"));
        open(&text.parse::<Spec>().unwrap()).err().unwrap().to_string()
    };
    let error = made(&path("c"), "1000TiB");
    assert!(error.contains("cannot allocate") && error.contains("make room"), "{error}");
    let (third, rest) = ("/dev/null", "is neither a file nor a block device");
    assert!(made(third, "8MiB").contains(rest));
    // The members are made, the array cannot be.
    assert!(made("ram:1MiB", "8MiB").contains("members must have"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
