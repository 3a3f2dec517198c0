//! The order of a sweep: full speed first, then slower and slower, and full speed again. What it
//! sets and sees is a [`Bench`].

use std::time::Duration;

use anyhow::{Result, anyhow};

use super::bench::{Bench, DiskLook, IDLE, Look};
use super::steps::{Measured, Steps};

/// Fans are steady when over so many looks their speeds stay within this share.
const STEADY: usize = 6;
const SAME: f64 = 0.02;
/// One that has no tachometer is given so long.
const UNSEEN: Duration = Duration::from_secs(10);
/// So long is waited for fans to become steady, and for disks to answer: one may have to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to do.
pub struct Sweep<'a> {
    /// Fan duties, in this order.
    pub duties: &'a [f64],
    /// Time measured at each.
    pub pause: Duration,
    /// Longest time to wait for users' I/O to end.
    pub wait: Duration,
    /// Names of the disks.
    pub disks: &'a [String],
    /// Hears how it goes.
    pub say: &'a dyn Fn(String),
}

impl Sweep<'_> {
    /// Measures what is missing in `steps`. The fans are given back whatever happens.
    ///
    /// # Errors
    /// Why it ended before its time.
    pub fn run(&self, bench: &mut impl Bench, steps: &mut Steps) -> Result<()> {
        let done = self.all(bench, steps);
        let back = bench.release();
        done.and(back)
    }

    fn all(&self, bench: &mut impl Bench, steps: &mut Steps) -> Result<()> {
        let mut attempt = steps.done().len() as u64;
        for duty in self.duties.iter().skip(steps.done().len()) {
            let step = loop {
                let users = match self.one(bench, *duty, attempt)? {
                    Ok(step) => break step,
                    Err(users) => users,
                };
                attempt += 1;
                (self.say)(format!(
                    "users' I/O on {users}: the measurement at {:.0} % is dropped and the fans are \
                     given back until the disks are idle",
                    duty * 100.0
                ));
                bench.release()?;
                self.idle(bench)?;
            };
            attempt += 1;
            (self.say)(step.to_string());
            steps.push(step)?;
        }
        Ok(())
    }

    /// The measurement at one duty, or the disks that somebody else uses.
    fn one(
        &self,
        bench: &mut impl Bench,
        duty: f64,
        attempt: u64,
    ) -> Result<Result<Measured, String>> {
        let in_force = bench.set(duty)?;
        bench.read(attempt)?;
        let mut looks = vec![bench.look()?];
        let begun = looks[0].at;
        while !is_ready(&looks) {
            let look = bench.look()?;
            if let Some(users) = self.users(&look) {
                return Ok(Err(users));
            }
            if look.at - begun > PATIENCE {
                return Err(self.unready(duty, &look));
            }
            looks.push(look);
        }
        let mut looks = looks.split_off(looks.len() - 1);
        while looks[looks.len() - 1].at - looks[0].at < self.pause {
            let look = bench.look()?;
            if let Some(users) = self.users(&look) {
                return Ok(Err(users));
            }
            looks.push(look);
        }
        // With no read under way the counters have to agree.
        bench.stop();
        let stopped = looks[looks.len() - 1].at;
        loop {
            let look = bench.look()?;
            if let Some(users) = self.users(&look) {
                return Ok(Err(users));
            }
            if !look.disks.iter().any(|disk| disk.is_busy) {
                return Ok(Ok(Measured::new(duty, in_force, &looks)));
            }
            if look.at - stopped > PATIENCE {
                return Err(self.unready(duty, &look));
            }
        }
    }

    /// The disks that somebody else uses.
    fn users(&self, look: &Look) -> Option<String> {
        let used = self.disks.iter().zip(&look.disks).filter(|(_, disk)| disk.foreign);
        let used: Vec<_> = used.map(|(name, _)| name.as_str()).collect();
        (!used.is_empty()).then(|| used.join(", "))
    }

    fn unready(&self, duty: f64, look: &Look) -> anyhow::Error {
        let silent = |disk: &DiskLook| disk.read == 0 || disk.is_busy;
        let disks = self.disks.iter().zip(&look.disks).filter(|(_, disk)| silent(disk));
        let disks: Vec<_> = disks.map(|(name, _)| name.as_str()).collect();
        let duty = duty * 100.0;
        let speeds = look.speeds.iter().flatten().map(|speed| format!("{:.0}", speed.0));
        match look.disks.iter().any(|disk| disk.read == 0) {
            true => anyhow!(
                "{} answered no read in {PATIENCE:?} at {duty:.0} %; leave it out: name others \
                 with --disk",
                disks.join(", ")
            ),
            false => anyhow!(
                "fans or disks do not settle within {PATIENCE:?} at {duty:.0} % (now {} rpm); see \
                 whether something else steers the fans (ebb probe)",
                speeds.collect::<Vec<_>>().join(", ")
            ),
        }
    }

    /// Waits until nobody uses the disks.
    fn idle(&self, bench: &mut impl Bench) -> Result<()> {
        let begun = bench.look()?.at;
        let mut since = begun;
        loop {
            let look = bench.look()?;
            let users = self.users(&look);
            if users.is_some() {
                since = look.at;
            }
            if look.at - since >= IDLE {
                return Ok(());
            }
            if look.at - begun >= self.wait {
                return Err(anyhow!(
                    "users' I/O on {} has not ended for {:?}; try again when idle, wait longer \
                     (--wait) or name idle disks (--disk)",
                    users.unwrap_or_else(|| self.disks.join(", ")),
                    self.wait
                ));
            }
        }
    }
}

/// Whether the fans are steady, and all disks have answered.
fn is_ready(looks: &[Look]) -> bool {
    let last = &looks[looks.len() - 1];
    let answered = last.disks.iter().all(|disk| disk.read > 0);
    let blind = last.speeds.iter().any(Option::is_none);
    if !answered || blind && last.at - looks[0].at < UNSEEN || looks.len() < STEADY {
        return false;
    }
    let recent = &looks[looks.len() - STEADY..];
    (0..last.speeds.len()).all(|fan| {
        let speeds = recent.iter().filter_map(|look| look.speeds[fan]).map(|speed| speed.0);
        let (least, most) = speeds.fold((f64::INFINITY, 0.0_f64), |(least, most), speed| {
            (least.min(speed), most.max(speed))
        });
        most == 0.0 || least >= most * (1.0 - SAME)
    })
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
