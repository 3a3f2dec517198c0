//! Files through io_uring.

use std::path::Path;
use std::sync::Arc;

use ebb_target::device::{Device, Error, Op, Spec, open};
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::common::{Client, any_ops, keeps_what_was_written};

fn file(path: &Path, rest: &str) -> Result<Arc<dyn Device>, Error> {
    open(&format!("file:{}{rest}", path.display()).parse::<Spec>()?)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn files_read_what_was_written(ops in any_ops(300)) {
        let folder = tempfile::tempdir().unwrap();
        let device = file(&folder.path().join("disk"), ",create,size=1200KiB").unwrap();
        keeps_what_was_written(&*device, ops);
    }

    #[test]
    fn files_without_direct_io_too(ops in any_ops(300)) {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap(); // tmpfs cannot zero ranges either.
        let device = file(&folder.path().join("disk"), ",create,size=150KiB,block=512B").unwrap();
        keeps_what_was_written(&*device, ops);
    }
}

#[test]
fn what_was_written_is_there_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let device = file(&path, ",create,size=1MiB").unwrap();
    let mut client = Client::new(&*device);
    assert!(client.write(Op::Write { durable: true }, 200, &[7; 8192]).is_success());
    drop((client, device));
    let device = file(&path, "").unwrap();
    assert_eq!(device.geometry().blocks, 256);
    assert_eq!(Client::new(&*device).read(200, 2).unwrap(), [7; 8192]);
}

#[test]
fn sleepers_are_woken_by_the_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let device = file(&folder.path().join("disk"), ",create,size=8MiB").unwrap();
    let mut client = Client::new(&*device);
    let mut done = Vec::new();
    // More than the ring holds at once, none of them awaited by polling.
    for lba in 0..600 {
        if client.pool.available() == 0 {
            break;
        }
        let io =
            client.io(if lba % 3 == 0 { Op::Flush } else { Op::Read { durable: false } }, lba, 1);
        client.channel.submit(io);
    }
    while client.pool.available() < 64 {
        client.channel.poll(&mut done);
        done.clear();
        let fd = client.channel.wake_fd().unwrap();
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        if client.pool.available() < 64 {
            let second = Timespec { tv_sec: 20, tv_nsec: 0 };
            assert_eq!(poll(&mut fds, Some(&second)).unwrap(), 1, "nobody was woken");
        }
    }
}

#[test]
fn a_channel_moves_between_threads_and_may_be_dropped_with_requests_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let device = file(&folder.path().join("disk"), ",create,size=8MiB").unwrap();
    let mut client = Client::new(&*device);
    for round in 0..20 {
        for lba in 0..50 {
            let io = client.io(Op::Read { durable: false }, lba, 1);
            client.channel.submit(io);
        }
        client.channel.poll(&mut Vec::new());
        client = std::thread::spawn(move || {
            let mut done = Vec::new();
            while client.pool.available() < 64 {
                client.channel.poll(&mut done);
                done.clear();
            }
            client
        })
        .join()
        .unwrap();
        assert_eq!(client.pool.available(), 64, "round {round}");
    }
    for lba in 0..50 {
        let io = client.io(Op::Read { durable: false }, lba, 8);
        client.channel.submit(io);
    }
    client.channel.poll(&mut Vec::new());
    drop(client.channel);
    assert_eq!(client.pool.available(), 64);
}

#[test]
fn what_cannot_be_used_is_named_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let refused = |rest: &str, part: &str| {
        let error = file(&path, rest).err().expect("it is refused").to_string();
        assert!(error.contains("disk") && error.contains(part), "{error}");
    };
    refused("", "add ',create'");
    refused(",create", "size=");
    let held = file(&path, ",create,size=1MiB").unwrap();
    assert!(held.describe().contains("io_uring"));
    refused("", "in use by another namespace");
    drop(held);
    refused(",size=2MiB", "holds 1 MiB, not 2 MiB");
    std::fs::write(&path, "short").unwrap();
    refused("", "not 4 KiB");
    let error = file(folder.path(), "").err().unwrap().to_string();
    assert!(error.contains("neither a file nor a block device"), "{error}");
}

#[test]
fn a_file_cut_short_under_us_is_an_error_not_a_hang() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let device = file(&path, ",create,size=1MiB").unwrap();
    let mut client = Client::new(&*device);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(512 << 10).unwrap();
    let status = client.read(126, 4).unwrap_err();
    assert_eq!(status, ebb_nvme::Status::UNRECOVERED_READ);
}
