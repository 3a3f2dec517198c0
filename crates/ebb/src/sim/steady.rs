//! What of a run is counted: once every policy has settled, whole periods of what they repeat.

use anyhow::Result;

use ebb_policy::units::Nanos;
use ebb_policy::{Settling, registry};
use ebb_twin::thermal::Thermal;

use super::plan::{Plan, Requests, whole_periods};

impl Plan {
    /// When `policy` and the server have settled under a steady load of `iops`.
    pub fn settling(&self, policy: &str, iops: f64) -> Settling {
        let server = self.server.profile.thermal.as_ref().map(Thermal::settling);
        let server =
            server.map_or(Settling::AT_ONCE, |after| Settling { after, ..Settling::AT_ONCE });
        // Those that know the load choose once.
        let own = registry::settling(policy, &self.settings, iops).unwrap_or_default();
        own.and(server)
    }

    /// Why a run does not come to something that would go on so.
    fn is_passing(&self) -> Result<Option<&'static str>> {
        Ok(match self {
            Self { changes, .. } if !changes.is_empty() => Some("what is stated changes meanwhile"),
            Self { faults: Some(_), .. } => Some("faults come and go"),
            _ if !self.jobs()?.is_empty() => Some("its jobs are done once"),
            _ => None,
        })
    }

    /// What is left out where nothing is stated, so that whole periods of settled policies are
    /// counted; and how long a trace is played again and again.
    pub fn settle(&mut self) -> Result<()> {
        let all = |iops| {
            let all = self.policies.iter().map(|policy| self.settling(policy, iops));
            all.fold(Settling::AT_ONCE, Settling::and)
        };
        let extent = match &self.requests {
            Requests::Traces { traces, again, .. }
                if self.length().is_none()
                    && (*again || all(f64::INFINITY) != Settling::AT_ONCE) =>
            {
                traces.extent()
            }
            _ => None,
        };
        let iops = extent.map_or(f64::INFINITY, |(last, count)| count as f64 / last.seconds());
        let all = all(iops);
        let last = extent.map(|(last, _)| last);
        let (stated, length) = (self.duration, self.length().or(last));
        let warmup = self.warmup_stated.unwrap_or(all.after);
        let enough = whole_periods(warmup.max(all.after) + all.after.max(all.period));
        if let (Requests::Traces { again: again @ true, .. }, None) = (&mut self.requests, stated) {
            // Once is enough where it is long enough, or has nothing that could come again.
            *again = length.is_some_and(|length| length < enough);
            self.duration = again.then_some(enough);
        }
        if let (None, Some(length)) = (self.warmup_stated, self.length().or(last))
            && self.is_passing()?.is_none()
        {
            self.warmup = whole_periods(all.warmup(length));
        }
        Ok(())
    }

    /// Why what a run of `policy` shows in the mean is not what it comes to in a year, in `counted`
    /// with `iops`; `None` where it is.
    pub fn unsettled(&self, policy: &str, iops: f64, counted: Nanos) -> Option<String> {
        if let Some(passing) = self.is_passing().ok()? {
            return Some(passing.to_owned());
        }
        let settling = self.settling(policy, iops);
        if let Some(sample) = &self.sample {
            let how = "a longer --duration";
            return lacking(policy, &settling, (sample.lead(), counted), how);
        }
        let loops = matches!(self.requests, Requests::Traces { again: false, .. });
        let how = match (loops, self.duration) {
            (true, None) => "--loop".to_owned(),
            (true, _) => format!("--loop {}", enough(&settling)),
            (false, _) => enough(&settling),
        };
        let how = match self.warmup_stated {
            Some(_) if self.warmup + counted >= settling.enough() => "no --warmup".to_owned(),
            Some(_) => format!("{how} without --warmup"),
            None => how,
        };
        lacking(policy, &settling, (self.warmup, counted), &how)
    }
}

/// How long a run has to last.
pub fn enough(settling: &Settling) -> String {
    format!("--duration {}s", settling.enough().seconds().ceil())
}

/// What a run lacks in which so much was left out and counted, and `how` to get it.
pub fn lacking(
    policy: &str,
    &Settling { after, period }: &Settling,
    (warmup, counted): (Nanos, Nanos),
    how: &str,
) -> Option<String> {
    if warmup >= after && counted >= after.max(period) {
        return None;
    }
    let learns = match period > after {
        true => format!(" and then learns anew every {}", whole(period)),
        false => String::new(),
    };
    Some(format!("{policy} takes up to {} to settle{learns}; {how} shows it", whole(after)))
}

/// In whole seconds, rounded up.
fn whole(time: Nanos) -> String {
    format!("{} s", time.seconds().ceil())
}
