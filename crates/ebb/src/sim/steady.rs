//! What of a run is counted: once every policy has settled, whole periods of what they repeat.

use anyhow::Result;

use ebb_cli::text::seconds;
use ebb_policy::units::Nanos;
use ebb_policy::{PERIOD, Settling, registry};
use ebb_record::verdict::percent;
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

    /// When all policies have.
    fn all_settling(&self, iops: f64) -> Settling {
        let all = self.policies.iter().map(|policy| self.settling(policy, iops));
        all.fold(Settling::AT_ONCE, Settling::and)
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
        let extent = match &self.requests {
            Requests::Traces { traces, again, .. }
                if self.length().is_none()
                    && (*again || self.all_settling(f64::INFINITY) != Settling::AT_ONCE) =>
            {
                traces.extent()
            }
            _ => None,
        };
        let iops = extent.map_or(f64::INFINITY, |(last, count)| count as f64 / last.seconds());
        let all = self.all_settling(iops);
        self.settled = all;
        let last = extent.map(|(last, _)| last);
        let (stated, length) = (self.duration, self.length().or(last));
        let warmup = self.warmup_stated.unwrap_or(all.after);
        let enough = whole_periods(warmup.max(all.after) + all.counted());
        if let (Requests::Traces { again: again @ true, .. }, None) = (&mut self.requests, stated) {
            // Once is enough where it is long enough, or has nothing that could come again.
            let short = length.filter(|length| *length < enough);
            *again = short.is_some();
            // Whole rounds of it, where no policy has periods of its own.
            self.round = short.filter(|_| all.period == Nanos::ZERO).unwrap_or_default();
            let rounds = all.counted().0.next_multiple_of(self.round.0.max(1));
            let rounds = whole_periods(warmup.max(all.after) + Nanos(rounds));
            self.duration = again.then_some(enough.max(rounds));
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
        match &self.sample {
            Some(sample) => {
                lacking(policy, &settling, (sample.lead(), counted), "a longer --duration")
            }
            None => self.few_turns(iops, counted).or_else(|| {
                let how = self.remedy(iops, counted);
                lacking(policy, &settling, (self.warmup, counted), &how)
            }),
        }
    }

    fn few_turns(&self, iops: f64, counted: Nanos) -> Option<String> {
        let all = self.all_settling(FEWER * iops);
        let stated = self.warmup_stated.unwrap_or_default();
        let without = self.warmup_stated.is_some() && stated < all.after;
        let after = if without { all.after } else { all.after.max(stated) };
        turns(self.turn(), counted, Settling { after, ..all }, without)
    }

    /// In what time the load comes round, and whether alike; 0 where that is not known, or nothing
    /// changes.
    pub fn turn(&self) -> (Nanos, bool) {
        match &self.requests {
            Requests::Generated(spec) => spec.turn(),
            Requests::Traces { .. } => (self.round, true),
        }
    }

    /// The options with which all policies show what is settled, by the rules that will decide.
    fn remedy(&self, iops: f64, counted: Nanos) -> String {
        let stated = self.warmup_stated.is_some();
        // Another length of a load that comes in bouts may have another rate.
        let all = self.all_settling(FEWER * iops);
        let enough = all.enough();
        let shows = |length: Nanos| {
            let left_out = whole_periods(self.settled.warmup(length));
            all.shows(left_out, length.saturating_sub(left_out))
        };
        let loops = matches!(self.requests, Requests::Traces { again: false, .. });
        if loops && self.duration.is_none() && !stated {
            return "--loop".to_owned();
        }
        if stated && self.warmup + counted >= enough && shows(self.warmup + counted) {
            return "no --warmup".to_owned();
        }
        let length = Nanos::from_secs(enough.seconds().ceil() as u64);
        let how = match shows(length) {
            true if stated => format!("--duration {} without --warmup", unspaced(length)),
            true => format!("--duration {}", unspaced(length)),
            false => {
                let left_out = Nanos::from_secs(all.after.seconds().ceil() as u64);
                let period = all.after.max(all.period);
                // How long a period takes depends on the rate, which is a little different then.
                let length = left_out + period + Nanos(period.0 / 50);
                format!("--warmup {} --duration {}", unspaced(left_out), unspaced(length))
            }
        };
        if loops { format!("--loop {how}") } else { how }
    }
}

/// How many of the requests may come in another run, at least, where they come in bouts.
const FEWER: f64 = 0.9;

/// Whole seconds, rounded up, as an option.
fn unspaced(time: Nanos) -> String {
    format!("{}s", time.0.div_ceil(1_000_000_000))
}

/// Requests up to this share are not told apart.
const SAME_WORK: f64 = 0.01;

/// What a run served.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a> {
    pub policy: &'a str,
    /// Requests per second.
    pub iops: f64,
    /// By how much more comes than is served, as a share.
    pub behind: f64,
}

impl Work<'_> {
    /// Whether the queue grows.
    pub fn is_behind(&self) -> bool {
        self.behind > SAME_WORK
    }
}

/// Why a run does not come to what another year would: it puts off a part of its requests, or
/// serves others than `first`.
pub fn other_work(run: &Work<'_>, first: Option<Work<'_>>) -> Option<String> {
    let policy = run.policy;
    if run.is_behind() {
        return Some(format!("under {policy} more comes than is served, and the queue grows"));
    }
    let first = first?;
    let change = run.iops / first.iops - 1.0;
    (change.abs() > SAME_WORK).then(|| {
        let side = if change < 0.0 { "fewer" } else { "more" };
        let (other, share) = (first.policy, percent(change));
        format!("{policy} serves {share} {side} requests than {other}")
    })
}

/// Why so little of a load says nothing of it, which comes round in this time and `alike`, or at
/// other lengths or rates each time. A run shows it whose policies have settled by the load's
/// first round that counts; `without` a stated warm-up that is too short for that.
pub fn turns(
    (turn, alike): (Nanos, bool),
    counted: Nanos,
    Settling { after, period }: Settling,
    without: bool,
) -> Option<String> {
    let rounds = if alike { 1 } else { 2 };
    let enough = Nanos(turn.0.saturating_mul(rounds));
    // The twin's clock ends with a whole control period.
    if counted + PERIOD > enough {
        return None;
    }
    let need = enough.max(after).0.div_ceil(period.0.max(1)).saturating_mul(period.0.max(1));
    let how = if without { " without --warmup" } else { "" };
    let [counted, turn] = apart([counted, turn]);
    let little = match alike {
        true => format!("{counted} are no whole round of the load, which takes {turn}"),
        false => format!("{counted} are not two rounds of the load, which take {turn} each"),
    };
    Some(format!("{little}; --duration {}{how} shows it", unspaced(after + Nanos(need) + PERIOD)))
}

/// Times that differ, so that the texts do.
fn apart(times: [Nanos; 2]) -> [String; 2] {
    let texts = times.map(|time| seconds(time.seconds()));
    let exact = || times.map(|time| format!("{} s", time.decimal()));
    if texts[0] == texts[1] { exact() } else { texts }
}

/// How long a run has to last.
pub fn enough(settling: &Settling) -> String {
    format!("--duration {}", unspaced(settling.enough()))
}

/// What a run lacks in which so much was left out and counted, and `how` to get it.
pub fn lacking(
    policy: &str,
    settling: &Settling,
    (left_out, counted): (Nanos, Nanos),
    how: &str,
) -> Option<String> {
    if settling.shows(left_out, counted) {
        return None;
    }
    let &Settling { after, period } = settling;
    let learns = match period > after {
        true => format!(" and then learns anew every {}", whole(period)),
        false => String::new(),
    };
    Some(format!("{policy} takes up to {} to settle{learns}; {how} shows it", whole(after)))
}

/// In whole seconds, rounded up.
fn whole(time: Nanos) -> String {
    format!("{} s", time.0.div_ceil(1_000_000_000))
}
