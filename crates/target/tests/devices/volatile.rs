//! The devices in memory.

use ebb_nvme::Status;
use ebb_target::device::{Geometry, Io, Op, Spec, open};
use proptest::prelude::*;

use super::common::{Client, any_ops, keeps_what_was_written};

proptest! {
    #[test]
    fn ram_reads_what_was_written(ops in any_ops(256)) {
        let ram = open(&"ram:128KiB,block=512B".parse::<Spec>().unwrap()).unwrap();
        keeps_what_was_written(&*ram, ops);
    }
}

#[test]
fn null_reads_zeros_and_takes_writes() {
    let device = open(&"null:1GiB".parse::<Spec>().unwrap()).unwrap();
    assert_eq!(device.geometry(), Geometry { block_size: 4096, blocks: 1 << 18 });
    let mut client = Client::new(&*device);
    assert!(client.write(Op::Write { durable: true }, 7, &[9; 8192]).is_success());
    assert_eq!(client.read(7, 2).unwrap(), [0; 8192]);
}

#[test]
fn null_grows_under_open_channels_and_an_array_keeps_its_size() {
    let device = open(&"null:1MiB".parse::<Spec>().unwrap()).unwrap();
    let mut client = Client::new(&*device);
    let mut last = || client.run(client.io(Op::Read { durable: false }, 511, 1)).status;
    assert_eq!(last(), Status::LBA_OUT_OF_RANGE);
    device.grow(2 << 20).unwrap();
    assert_eq!((last(), device.geometry().bytes()), (Status::SUCCESS, 2 << 20));
    for bytes in [1 << 20, (2 << 20) + 1] {
        assert!(device.grow(bytes).is_err());
    }
    let array = "raid5:ram:64MiB,ram:64MiB,ram:64MiB,create,lazy".parse::<Spec>().unwrap();
    let error = open(&array).unwrap().grow(1 << 40).unwrap_err().to_string();
    assert!(error.contains("add another namespace"), "{error}");
}

#[test]
fn what_does_not_fit_is_refused_and_the_buffer_comes_back() {
    for spec in ["null:1MiB", "ram:1MiB"] {
        let device = open(&spec.parse::<Spec>().unwrap()).unwrap();
        let mut client = Client::new(&*device);
        let done = client.run(client.io(Op::Read { durable: false }, 255, 2));
        assert_eq!(done.status, Status::LBA_OUT_OF_RANGE);
        assert!(done.buffer.is_some());
        assert_eq!(
            client.run(client.io(Op::Read { durable: false }, u64::MAX, 1)).status,
            Status::LBA_OUT_OF_RANGE
        );
        let io = Io { blocks: 2, ..client.io(Op::Write { durable: false }, 0, 1) };
        assert_eq!(client.run(io).status, Status::DATA_SGL_LENGTH_INVALID);
    }
}
