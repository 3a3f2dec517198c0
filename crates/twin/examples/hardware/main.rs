//! The physics behind the hardware of a guest: reads what its kernel commands and does, lets the
//! twin's models answer, and tells its sensors (docs/guest.md).
//!
//!     hardware PROFILE FAULTS EVERY [SLOWER]
//!
//! FAULTS is a file that may come and go; each of its lines breaks a part for as long as it is
//! there: `fan 2 stalled`, `fan 0 dead`, `socket 1 stuck`, `socket 0 lost`, `inlet lying -15`.
//! Every so many seconds a line of JSON says what is true, whatever sensors claim. Where work takes
//! SLOWER times as long as on the real server, Ebb's own counts as there.

mod kernel;
mod server;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use ebb_policy::units::Nanos;
use ebb_twin::Profile;

use kernel::Kernel;
use server::Server;

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(200);

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [profile, faults, every, slower @ ..] = &args[..] else {
        return Err("usage: hardware PROFILE FAULTS EVERY [SLOWER]".into());
    };
    let slower = slower.first().map_or(Ok(1.0), |slower| slower.parse())?;
    let every = Duration::try_from_secs_f64(every.parse()?)?;
    let mut kernel = Kernel::open(slower)?;
    let mut server = Server::new(Profile::load(profile)?, &kernel)?;
    let begun = Instant::now();
    let (mut last, mut due) = (begun, Duration::ZERO);
    loop {
        server.break_by(&std::fs::read_to_string(Path::new(faults)).unwrap_or_default())?;
        let now = Instant::now();
        let seconds = (now - last).as_secs_f64();
        last = now;
        let commands = kernel.commands()?;
        let work = kernel.work(seconds)?;
        let at = Nanos::from_seconds((now - begun).as_secs_f64());
        let sensed = server.pass(at, seconds, &commands, &work);
        kernel.tell(&sensed)?;
        if now - begun >= due {
            due += every;
            let unix = SystemTime::UNIX_EPOCH.elapsed()?.as_secs_f64();
            writeln!(std::io::stdout(), "{}", server.truth(at, unix, kernel.left_out()))?;
        }
        std::thread::sleep(PERIOD);
    }
}
