//! The devices in memory.

use ebb_target::device::{Geometry, Io, Op, Spec, open};
use ebb_target::wire::Status;
use proptest::prelude::*;

use crate::common::Client;

const BLOCK: usize = 512;
const BLOCKS: u64 = 256;

fn any_op() -> impl Strategy<Value = (Op, u64, u32, u8)> {
    let op = prop_oneof![
        4 => any::<bool>().prop_map(|durable| Op::Write { durable }),
        4 => Just(Op::Read),
        1 => any::<bool>().prop_map(|durable| Op::WriteZeroes { durable }),
        1 => Just(Op::Deallocate),
        1 => Just(Op::Flush),
    ];
    (op, 0..BLOCKS, 0..200u32, any::<u8>())
        .prop_map(|(op, lba, blocks, fill)| (op, lba, blocks.min((BLOCKS - lba) as u32), fill))
}

proptest! {
    #[test]
    fn ram_reads_what_was_written(ops in prop::collection::vec(any_op(), 1..60)) {
        let device = open(&"ram:128KiB,block=512B".parse::<Spec>().unwrap()).unwrap();
        let mut client = Client::new(&*device);
        let mut model = vec![0; BLOCK * BLOCKS as usize];
        for (op, lba, blocks, fill) in ops {
            let at = lba as usize * BLOCK..(lba as usize + blocks as usize) * BLOCK;
            match op {
                Op::Write { .. } => {
                    model[at.clone()].fill(fill);
                    prop_assert!(client.write(op, lba, &model[at]).is_success());
                }
                Op::Read => prop_assert_eq!(&client.read(lba, blocks).unwrap(), &model[at]),
                Op::Flush => prop_assert!(client.run(client.io(op, 0, 0)).status.is_success()),
                _ => {
                    prop_assert!(client.run(client.io(op, lba, blocks)).status.is_success());
                    // Memory that is given back reads as zeros; a hint may leave the rest.
                    model[at.clone()].copy_from_slice(&client.read(lba, blocks).unwrap());
                    if let Op::WriteZeroes { .. } = op {
                        prop_assert!(model[at].iter().all(|byte| *byte == 0));
                    }
                }
            }
        }
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
fn what_does_not_fit_is_refused_and_the_buffer_comes_back() {
    for spec in ["null:1MiB", "ram:1MiB"] {
        let device = open(&spec.parse::<Spec>().unwrap()).unwrap();
        let mut client = Client::new(&*device);
        let done = client.run(client.io(Op::Read, 255, 2));
        assert_eq!(done.status, Status::LBA_OUT_OF_RANGE);
        assert!(done.buffer.is_some());
        assert_eq!(client.run(client.io(Op::Read, u64::MAX, 1)).status, Status::LBA_OUT_OF_RANGE);
        let io = Io { blocks: 2, ..client.io(Op::Write { durable: false }, 0, 1) };
        assert_eq!(client.run(io).status, Status::DATA_SGL_LENGTH_INVALID);
    }
}
