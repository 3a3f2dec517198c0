//! The disks to read: hard disks that nobody uses at the moment, opened for reading only.

use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Result;
use ebb_bench::replay::target::{Kind, Place, Target, Wanted};
use ebb_cli::usage;
use ebb_host::{Drive, Machine};

use super::HereArgs;
use super::bench::IDLE;
use super::reader::READ;

/// One of them.
pub struct Disk {
    /// It.
    pub drive: Drive,
    /// What stays the same when its name changes.
    pub id: String,
    /// It, opened.
    pub target: Target,
}

/// Those that are named, or those of `known` identities, or all SATA and SAS disks that are idle;
/// in the order of their identities.
///
/// # Errors
/// Why one cannot be read, or that there is none.
pub fn choose(args: &HereArgs, machine: &Machine, known: Option<&[String]>) -> Result<Vec<Disk>> {
    let mut places = Vec::new();
    for path in &args.disk {
        places.push(named(args, machine, path)?);
    }
    let is_wanted = |drive: &&Drive| match known {
        Some(known) => drive.id.as_ref().is_some_and(|id| known.contains(id)),
        None => drive.rotational && drive.is_sata_or_sas(),
    };
    if places.is_empty() {
        for drive in machine.drives.iter().filter(is_wanted) {
            let path = machine.sys.path(format!("dev/{}", drive.name));
            places.push((drive, Place::look(&path, &machine.sys)?));
        }
    }
    if places.is_empty() {
        return Err(usage(
            "no SATA or SAS hard disk here (/sys/block/*/queue/rotational is 1): fans shake no \
             other; name a disk with --disk if there is one all the same",
        ));
    }
    let (idle, busy) = idle(machine, places)?;
    // Whoever names one wants that one.
    if !busy.is_empty() && (idle.is_empty() || known.is_some() || !args.disk.is_empty()) {
        return Err(usage(format!(
            "{} did I/O in {IDLE:?}: try again when idle, or name an idle one with --disk",
            busy.join(", ")
        )));
    }
    let opened = idle.into_iter().map(|(drive, place)| open(args, machine, drive, &place));
    let mut disks = opened.collect::<Result<Vec<_>>>()?;
    disks.sort_by(|one, other| one.id.cmp(&other.id));
    disks.dedup_by(|one, other| one.id == other.id);
    Ok(disks)
}

/// The drive that the device `path` is.
fn named<'a>(args: &HereArgs, machine: &'a Machine, path: &Path) -> Result<(&'a Drive, Place)> {
    let told = |why: &str| usage(format!("--disk {}: {why}", path.display()));
    let at = match args.is_copy() {
        true => machine.sys.path(path.strip_prefix("/").unwrap_or(path)),
        false => PathBuf::from(path),
    };
    let place = Place::look(&at, &machine.sys)?;
    let name = match &place.kind {
        Kind::Device(name) => name.clone(),
        // Of a copy of a machine.
        Kind::File if args.is_copy() => {
            at.file_name().unwrap_or_default().to_string_lossy().into_owned()
        }
        _ => return Err(told("it is no block device; name a hard disk, such as /dev/sda")),
    };
    let drive = machine.drives.iter().find(|drive| drive.devices.contains(&name));
    let drive = drive.ok_or_else(|| {
        told(&format!("{name} is no whole drive of this machine; name one that ebb probe shows"))
    })?;
    if !drive.rotational || drive.is_remote() {
        return Err(told("it is no hard disk: fans do not shake it; name one that is"));
    }
    Ok((drive, place))
}

type Found<'a> = (&'a Drive, Place);

/// Which of them do nothing for a while; the names of the others.
fn idle<'a>(machine: &Machine, places: Vec<Found<'a>>) -> Result<(Vec<Found<'a>>, Vec<String>)> {
    let count = || {
        let counters = places.iter().map(|(drive, _)| {
            drive.counters(&machine.sys).map_err(|absent| {
                usage(format!("{absent}: users' I/O on {} could not be seen", drive.name))
            })
        });
        counters.collect::<Result<Vec<_>>>()
    };
    let before = count()?;
    thread::sleep(IDLE);
    let after = count()?;
    let mut moved = before.iter().zip(after).map(|(one, now)| now.in_flight > 0 || *one != now);
    let is_idle = |_: &Found<'_>| moved.next() == Some(false);
    let (idle, busy): (Vec<_>, Vec<_>) = places.into_iter().partition(is_idle);
    Ok((idle, busy.into_iter().map(|(drive, _)| drive.name.clone()).collect()))
}

fn open(args: &HereArgs, machine: &Machine, drive: &Drive, place: &Place) -> Result<Disk> {
    let told = |why: &str| usage(format!("{}: {why}", place.name()));
    let id = drive.id.clone().ok_or_else(|| told("it has neither a serial number nor a name"))?;
    // Nothing is ever written.
    let wanted = Wanted { bytes: 0, writes: false, destroy: None, buffered: false, keep: false };
    let target = place.open(&wanted, &machine.sys)?;
    if !target.direct && !args.is_copy() {
        return Err(told("it cannot be read past the page cache (O_DIRECT)"));
    }
    if target.bytes < READ || !READ.is_multiple_of(target.block) {
        return Err(told("it is too small, or its blocks are too large"));
    }
    Ok(Disk { drive: drive.clone(), id, target })
}
