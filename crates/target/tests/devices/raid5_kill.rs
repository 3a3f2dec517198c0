//! A process that writes to an array of files is killed; nothing it was told is lost.
//!
//! `EBB_KILLS` sets how often (3 where absent).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use ebb_target::device::{Op, Spec, open};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::common::Client;

/// Where the child finds its members, and the first version it writes.
const FOLDER: &str = "EBB_KILL_FOLDER";
const FIRST: &str = "EBB_KILL_FIRST";
const BLOCKS: u64 = 120;
const DEPTH: usize = 8;

fn spec(folder: &Path, members: &[&str], rest: &str) -> Spec {
    let paths: Vec<_> =
        members.iter().map(|name| folder.join(name).display().to_string()).collect();
    format!("raid5:{},journal=16,chunk=16KiB{rest}", paths.join(",")).parse().unwrap()
}

/// What the write of this version covers: the same for the child and for who checks.
fn place(version: u64) -> (u64, u32) {
    let mut random = Pcg64Mcg::seed_from_u64(version);
    let blocks = if random.random_bool(0.1) { 12 } else { random.random_range(1..4) };
    (random.random_range(0..BLOCKS - u64::from(blocks)), blocks)
}

#[test]
#[ignore = "the process that is killed by nothing_acknowledged_is_lost_to_a_kill"]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let array = open(&spec(Path::new(&folder), &["a", "b", "c", "d"], "")).unwrap();
    let mut client = Client::new(&*array);
    let (mut under_way, mut done) = (Vec::<(u64, u64, u32)>::new(), Vec::new());
    let mut out = std::io::stdout();
    writeln!(out, "\nready").unwrap();
    for version in first.. {
        let (lba, blocks) = place(version);
        let meets = |(_, other, length): &(u64, u64, u32)| {
            *other < lba + u64::from(blocks) && lba < other + u64::from(*length)
        };
        while under_way.len() >= DEPTH || under_way.iter().any(meets) {
            client.channel.poll(&mut done);
            for done in done.drain(..) {
                assert!(done.status.is_success());
                under_way.retain(|(version, ..)| *version != done.tag);
                writeln!(out, "acked {}", done.tag).unwrap();
            }
        }
        let mut io = client.io(Op::Write { durable: true }, lba, blocks);
        io.tag = version;
        io.buffer.as_mut().unwrap().chunks_mut(8).for_each(|part| {
            part.copy_from_slice(&version.to_le_bytes());
        });
        under_way.push((version, lba, blocks));
        client.channel.submit(io);
    }
}

/// Starts a child, kills it after some acknowledgements; returns those.
fn killed(folder: &Path, first: u64, after: usize) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["devices::raid5_kill::child", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acked = Vec::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        // The last line may be cut short: a digit less would be another version.
        if let Some(version) = line.strip_prefix("acked ").and_then(|rest| rest.strip_suffix('\n'))
        {
            acked.push(version.parse().unwrap());
        }
        line.clear();
        if acked.len() == after {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(acked.len() >= after, "the child ended by itself");
    acked
}

#[test]
fn nothing_acknowledged_is_lost_to_a_kill() {
    let kills = std::env::var("EBB_KILLS").map_or(3, |kills| kills.parse().unwrap());
    let mut random = Pcg64Mcg::seed_from_u64(kills);
    let folder = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c", "d"];
    drop(open(&spec(folder.path(), &names, ",create,size=4MiB")).unwrap());
    let mut least = vec![0; BLOCKS as usize];
    let mut first = 1;
    for kill in 0..kills {
        let acked = killed(folder.path(), first, random.random_range(1..200));
        let last = acked.iter().max().unwrap();
        for version in &acked {
            let (lba, blocks) = place(*version);
            for block in lba..lba + u64::from(blocks) {
                least[block as usize] = (*version).max(least[block as usize]);
            }
        }
        let lost = random.random_range(0..5usize);
        let rest: Vec<_> = names.into_iter().filter(|name| names.get(lost) != Some(name)).collect();
        let array = open(&spec(folder.path(), &rest, ",degraded")).unwrap();
        let mut client = Client::new(&*array);
        for lba in 0..BLOCKS {
            let data = client.read(lba, 1).unwrap();
            let version = u64::from_le_bytes(data[..8].try_into().unwrap());
            let whole = data.chunks(8).all(|part| part == version.to_le_bytes());
            let known = &mut least[lba as usize];
            assert!(
                whole && version >= *known && version <= last + 2 * DEPTH as u64,
                "kill {kill}, {} members: block {lba} has {version}, {known} was acknowledged",
                rest.len()
            );
            *known = version;
        }
        drop((client, array));
        if rest.len() < names.len() {
            let name = folder.path().join(names[lost]);
            std::fs::remove_file(name).unwrap();
            let again = spec(folder.path(), &names, ",rebuild,size=4MiB");
            let array = open(&again).unwrap();
            while array.describe().contains("rebuilding") {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        first = last + 1000;
    }
}
