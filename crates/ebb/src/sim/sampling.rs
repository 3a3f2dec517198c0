//! The sample of a plan: a first pass over its load, and what is drawn of it.

use std::iter;

use anyhow::Result;

use ebb_cli::{interrupt, usage};
use ebb_policy::Settling;
use ebb_policy::units::Nanos;
use ebb_trace::Workload;
use ebb_trace::transform::{Load, loads};
use ebb_twin::windows::WINDOW;

use super::plan::{Plan, Requests};
use super::sampled::{Sample, sum};

/// The whole load where nothing says how long it is.
const DAY: Nanos = Nanos::from_secs(86_400);
impl Plan {
    /// Draws what is simulated of the load, where only a share of it is to be.
    pub fn draw(&mut self, share: Option<f64>) -> Result<()> {
        let Some(share) = share else { return Ok(()) };
        let (slots, end) = self.slots()?;
        let iops = sum(&slots).requests / end.seconds();
        let settling = self.policies.iter().map(|policy| self.settling(policy, iops));
        let settling = settling.fold(Settling::AT_ONCE, Settling::and);
        let sample = Sample::new((&slots, end), settling, share, self.seed)?;
        self.duration = Some(sample.played());
        self.sample = Some(sample);
        Ok(())
    }

    /// What comes of the load in each window of the SLA, and when it ends.
    fn slots(&self) -> Result<(Vec<Load>, Nanos)> {
        match &self.requests {
            Requests::Generated(spec) => {
                if spec.arrivals.is_empty() || !spec.batch.is_empty() {
                    return Err(usage(format!(
                        "--sampled needs a load that comes by the clock: of workload '{}' \
                         nothing says beforehand what comes when. Simulate it whole, or give its \
                         rate as [[arrivals]]",
                        spec.name
                    )));
                }
                let end = self.duration.unwrap_or(DAY);
                let slots = end.0.div_ceil(WINDOW.0) as usize;
                let context = self.server.context(spec, self.seed);
                let mut loads = spec.loads(&context, (slots, WINDOW))?;
                // The last is expected whole.
                if let (Some(last), part @ 1..) = (loads.last_mut(), end.0 % WINDOW.0) {
                    let share = part as f64 / WINDOW.0 as f64;
                    (last.requests, last.bytes) = (last.requests * share, last.bytes * share);
                }
                Ok((loads, end))
            }
            Requests::Traces { .. } => {
                let Workload::Open(mut source) = self.workload()?.0 else {
                    return Err(usage("a trace comes by the clock"));
                };
                interrupt::leave_if_asked();
                let (mut slots, last) = loads(&mut source, WINDOW, self.duration)?;
                let end = self.length().unwrap_or(last + Nanos(1));
                slots.extend(iter::repeat_n(
                    Load::default(),
                    (end.0.div_ceil(WINDOW.0) as usize).saturating_sub(slots.len()),
                ));
                Ok((slots, end))
            }
        }
    }
}
