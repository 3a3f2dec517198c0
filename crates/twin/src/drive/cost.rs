//! What a command costs the twin itself: `cargo test -p ebb-twin --release -- --ignored
//! --nocapture drive::cost` prints it. Not asserted: wall clocks differ.

use std::hint::black_box;
use std::time::Instant;

use super::tests::profile;
use super::*;

#[test]
#[ignore = "prints the wall-clock cost of a command"]
fn print_cost_of_submit() {
    const COUNT: u64 = 5_000_000;
    for (op, size, gap) in [
        (Op::Read, 4096, 1_000),
        (Op::Read, 16_384, 1_500),
        (Op::Read, 131_072, 12_000),
        (Op::Write, 4096, 4_500),
        (Op::Write, 131_072, 20_000),
        (Op::Read, 4096, 400_000),
    ] {
        let mut drives: Vec<_> = (0..16).map(|i| Drive::new(&profile("pm1743"), i)).collect();
        let begin = Instant::now();
        for count in 0..COUNT {
            let at = Nanos(count * gap / 16);
            let page = count.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 36;
            let drive = &mut drives[(count % 16) as usize];
            black_box(drive.submit(at, op, page * u64::from(size), size));
        }
        let each = begin.elapsed().as_nanos() as f64 / COUNT as f64;
        println!("{op:?} of {size} B every {gap} ns on 16 drives: {each:.1} ns");
    }
}
