//! Work that begins on a server that has done little so far: no fire, whatever was learnt of it.

use super::*;

#[test]
fn the_first_work_of_an_idle_server_is_no_emergency() {
    for (name, little) in [("dlb", 0.0), ("dlb", 0.002), ("eadc", 0.002), ("eadc-plus", 0.05)] {
        for idle in [5, 20, 60, 400, 1500] {
            let mut server =
                looped(name, Plant::new(Physics::default(), vec![compute(little); 16]));
            let calm = |server: &mut Loop, seconds: u64, what: &str| {
                for half in 0..2 * seconds {
                    server.step();
                    assert!(
                        !server.guarded(),
                        "{name}, {little} of a core for {idle} s: {what} {half}"
                    );
                }
            };
            calm(&mut server, idle, "idle");
            // Little more, in which nothing but the first heat of a cold die is to be seen.
            server.plant.jobs.iter_mut().for_each(|job| job.cpu = 2.0 * little);
            calm(&mut server, 60, "hardly more");
            server.plant.jobs.iter_mut().for_each(|job| job.cpu = 0.5);
            calm(&mut server, 120, "work");
            assert!(server.peak < 85.0, "below the set point: {}", server.peak);
        }
    }
}
