//! What of a run is counted: once every policy has settled, whole periods of what they repeat.

use anyhow::Result;

use ebb_policy::units::Nanos;
use ebb_policy::{Settling, registry};
use ebb_twin::thermal::Thermal;

use super::plan::{Plan, Requests, whole_periods};

impl Plan {
    /// When `policy` and the server have settled under a steady load of `iops`.
    fn settling(&self, policy: &str, iops: f64) -> Settling {
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
        let stated = self.duration;
        let length = self.length().or(last);
        if let (Requests::Traces { again: again @ true, .. }, None) = (&mut self.requests, stated) {
            // Once is enough where it is long enough.
            *again = length.is_none_or(|length| length < all.enough());
            self.duration = again.then(|| whole_periods(all.enough()));
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
        let Settling { after, period } = settling;
        if self.warmup >= after && counted >= after.max(period) {
            return None;
        }
        let learns = match period > after {
            true => format!(" and then learns anew every {period}"),
            false => String::new(),
        };
        let how = match self.requests {
            Requests::Traces { again: false, .. } => "--loop".to_owned(),
            _ => format!("--duration {}s", settling.enough().seconds().ceil()),
        };
        let warmup = self.warmup_stated.map_or("", |_| ", without --warmup");
        Some(format!("{policy} takes up to {after} to settle{learns}; {how} shows it{warmup}"))
    }
}
