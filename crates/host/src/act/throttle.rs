//! Limits of the control groups that the operator names (`machine.throttle`): how long they run
//! together (`cpu.max`), and how much they read and write of each drive (`io.max`,
//! `Documentation/admin-guide/cgroup-v2.rst`), as a budget of the whole server asks for.
//!
//! A limit is shared by need: who needs less than an equal share keeps what it needs, and what is
//! left goes to all in equal parts. What others use of a drive comes off its limit first. Where
//! that leaves nothing, the limit cannot be kept here: it is refused.

use ebb_policy::topology::LEAST_RATE;
use ebb_policy::units::Nanos;
use ebb_policy::{Control, InForce, Outcome, Signals};

use crate::act::jobs::QUOTA;
use crate::act::knob::{CGROUPS, Knob, Place, RATES};
use crate::act::originals::Original;
use crate::act::owned::StateError;
use crate::act::steering::{Steering, refused, worse};
use crate::find::jobs::{Use, Yielding, turn_on};
use crate::find::layout::Layout;
use crate::find::machine::Machine;
use crate::sys::Absent;

/// Who has used so much of its share needs more.
const USED_UP: f64 = 0.9;
/// What is used is needed with this margin, and so much of a limit is needed in any case.
const MARGIN: f64 = 1.25;
const NEWCOMER: f64 = 0.02;
/// Shares are set in whole steps of this factor: needs that hardly change are no reason to write.
const STEP: f64 = 1.05;
/// The kernel takes no shorter quota (`min_cfs_quota_period` in `kernel/sched/core.c`).
const LEAST_QUOTA: Nanos = Nanos::from_millis(1);
/// So many cycles in a row others use up a drive's limit until that is said.
const LASTING: u32 = 10;

/// All groups.
#[derive(Debug)]
pub struct Throttle {
    groups: Vec<Group>,
    /// What identifies each drive.
    drives: Vec<Option<String>>,
    /// Bytes a second read from and written to each drive by anybody, and for how many cycles
    /// others have used up a limit of it.
    all: Vec<[f64; 2]>,
    unbound: Vec<u32>,
    /// Those hosts of an `ebb serve` for which nobody waits.
    hosts: Vec<Guest>,
}

/// A host of an `ebb serve`, which limits it itself: bytes a second that it moved and may move.
#[derive(Debug, Clone, Default)]
struct Guest {
    used: f64,
    given: Option<f64>,
}

#[derive(Debug)]
struct Group {
    path: String,
    /// Whether nobody waits for it.
    best_effort: bool,
    uses: Use,
    /// The group whose places are in hand, and these.
    taken: Option<u64>,
    quota: Option<usize>,
    rates: Vec<Option<usize>>,
    /// What it was given last: cores, and rates of each drive.
    cores: Option<f64>,
    given: Vec<[Option<f64>; 2]>,
    /// Most that it may have of each drive, since nobody waits for it.
    most: Vec<[Option<f64>; 2]>,
}

impl Throttle {
    /// Those of `layout`; none is looked at yet.
    #[must_use]
    pub fn new(layout: &Layout) -> Self {
        let count = layout.drives.len();
        let group = |of: &Yielding| Group {
            path: of.group.clone(),
            best_effort: of.best_effort,
            uses: Use::default(),
            taken: None,
            quota: None,
            rates: vec![None; count],
            cores: None,
            given: vec![[None; 2]; count],
            most: vec![[None; 2]; count],
        };
        Self {
            groups: layout.throttle.iter().map(group).collect(),
            drives: layout.drives.iter().map(|parts| parts.rated().cloned()).collect(),
            all: vec![[0.0; 2]; count],
            unbound: vec![0; count],
            hosts: vec![Guest::default(); layout.hosts.len()],
        }
    }

    /// Hears how many bytes a second each host of an `ebb serve` moved for which nobody waits.
    pub fn hosts_used(&mut self, used: impl Iterator<Item = f64>) {
        self.hosts.iter_mut().zip(used).for_each(|(host, used)| host.used = used);
    }

    /// How many each of them may move from now on.
    pub fn hosts_given(&self) -> impl Iterator<Item = Option<f64>> {
        self.hosts.iter().map(|host| host.given)
    }

    /// Hears what each group used in the period that ends now, and takes those that have come in
    /// hand: what was found of them is on disk when this returns.
    pub fn used(
        &mut self,
        machine: &Machine,
        uses: &[Use],
        signals: &Signals,
        steering: &mut Steering,
    ) {
        let rate = |bytes: Option<u64>| {
            bytes.unwrap_or_default() as f64 / signals.period.seconds().max(1e-9)
        };
        for (all, drive) in self.all.iter_mut().zip(&signals.drives) {
            *all = [rate(drive.read_bytes), rate(drive.written_bytes)];
        }
        for (group, uses) in self.groups.iter_mut().zip(uses) {
            group.uses.clone_from(uses);
            if group.taken != uses.id
                && let Err(error) = group.take(machine, &self.drives, steering)
            {
                steering.tell(group.quota_place(), format!("it stays as it is: {error}"));
            }
        }
    }

    /// Puts in force what is given of them.
    pub fn set(
        &mut self,
        given: &InForce,
        steering: &mut Steering,
        now: Nanos,
        tell: &mut impl FnMut(Control, usize, Outcome),
    ) {
        if self.groups.is_empty() && self.hosts.is_empty() {
            return;
        }
        let time = given.cpu_time.at(0).given;
        let period = given.cpu_period.at(0).given;
        let outcome = self.set_time(time, period, steering, now);
        tell(Control::CpuTime, 0, outcome);
        tell(Control::CpuPeriod, 0, outcome);
        let outcome = self.share_best_effort(given.best_effort_rate.at(0).given);
        tell(Control::BestEffortRate, 0, outcome);
        for drive in 0..self.drives.len() {
            let asked = [&given.read_rate, &given.write_rate].map(|rate| rate.at(drive).given);
            let outcome = self.set_rates(drive, asked, steering, now);
            for (control, asked) in [Control::ReadRate, Control::WriteRate].into_iter().zip(asked) {
                let done = asked.is_none() && outcome == Outcome::Refused;
                tell(control, drive, if done { Outcome::Done } else { outcome });
            }
        }
    }

    fn set_time(
        &mut self,
        asked: Option<f64>,
        period: Option<Nanos>,
        steering: &mut Steering,
        now: Nanos,
    ) -> Outcome {
        let its = |group: &&Group| group.quota.is_some();
        let need = |group: &Group| need(asked, group.uses.cores, group.cores);
        let needs: Vec<_> = self.groups.iter().filter(its).map(need).collect();
        let shares = asked.map(|asked| share(asked, &needs));
        let mut all = refused(asked.is_some() && needs.is_empty());
        let limited = self.groups.iter_mut().filter(|group| group.quota.is_some());
        for (at, group) in limited.enumerate() {
            let Some(place) = group.quota else { continue };
            group.cores = shares.as_ref().map(|shares| steps(shares[at]));
            let value = group.cores.and_then(|cores| quota(steering.found(place), cores, period));
            all = worse(all, steering.set(place, value.as_deref(), now));
        }
        all
    }

    /// Shares the rate of all work that nobody waits for among its hosts, and its groups and their
    /// drives.
    fn share_best_effort(&mut self, asked: Option<f64>) -> Outcome {
        let host = |host: &mut Guest| (host.given.take(), host.used);
        let before: Vec<_> = self.hosts.iter_mut().map(host).collect();
        let hosts = self.hosts.iter_mut().zip(before);
        let mut its: Vec<_> =
            hosts.map(|(host, (given, used))| ((&mut host.given, used), given)).collect();
        for group in self.groups.iter_mut().filter(|group| group.best_effort) {
            let Group { rates, uses, given, most, .. } = group;
            for (drive, most) in most.iter_mut().enumerate() {
                *most = [None; 2];
                if rates[drive].is_some() {
                    let used = uses.rates.get(drive).copied().unwrap_or_default();
                    its.extend(most.iter_mut().zip(used).zip(given[drive]));
                }
            }
        }
        let Some(asked) = asked else { return Outcome::Done };
        let part = Some(asked / its.len().max(1) as f64);
        let needs: Vec<_> =
            its.iter().map(|((_, used), given)| need(part, *used, *given)).collect();
        for (((most, _), _), share) in its.iter_mut().zip(share(asked, &needs)) {
            **most = Some(share);
        }
        refused(its.is_empty())
    }

    fn set_rates(
        &mut self,
        drive: usize,
        asked: [Option<f64>; 2],
        steering: &mut Steering,
        now: Nanos,
    ) -> Outcome {
        let its = |group: &&Group| group.rates[drive].is_some();
        let (mut is_bound, mut shares) = (true, [None, None]);
        for (way, asked) in asked.into_iter().enumerate() {
            let Some(asked) = asked else { continue };
            let of = |group: &Group| group.uses.rates.get(drive).map_or(0.0, |rates| rates[way]);
            let theirs: f64 = self.groups.iter().filter(its).map(of).sum();
            let others = (self.all[drive][way] - theirs).max(0.0);
            is_bound &= others < asked.max(LEAST_RATE);
            let left = (asked - others).max(LEAST_RATE);
            let need = |group: &Group| need(Some(left), of(group), group.given[drive][way]);
            let needs: Vec<_> = self.groups.iter().filter(its).map(need).collect();
            shares[way] = Some(share(left, &needs));
        }
        let mut all = Outcome::Done;
        let limited = self.groups.iter_mut().filter(|group| group.rates[drive].is_some());
        for (at, group) in limited.enumerate() {
            let Some(place) = group.rates[drive] else { continue };
            let own = [0, 1].map(|way| {
                let share = shares[way].as_ref().map(|shares| shares[at]);
                let least = share.into_iter().chain(group.most[drive][way]).reduce(f64::min);
                least.map(|rate| steps(rate).max(LEAST_RATE))
            });
            group.given[drive] = own;
            let value = rates(steering.found(place), own);
            all = worse(all, steering.set(place, value.as_deref(), now));
        }
        self.note_unbound(drive, is_bound, steering);
        worse(all, refused(!is_bound))
    }

    /// Says, once while it lasts, that others use more of a drive than is allowed in all.
    fn note_unbound(&mut self, drive: usize, is_bound: bool, steering: &mut Steering) {
        let count = &mut self.unbound[drive];
        *count = if is_bound { 0 } else { count.saturating_add(1) };
        if *count == LASTING
            && let (Some(disk), Some(group)) = (&self.drives[drive], self.groups.first())
        {
            let place = Place::Rates { group: group.path.clone(), disk: disk.clone() };
            let text = "what others read and write is more than the budget leaves for this drive: \
                        name their control groups in machine.throttle; the kernel's own work \
                        cannot be limited";
            steering.tell(place, text.to_owned());
        }
    }
}

impl Group {
    fn quota_place(&self) -> Place {
        Place::File { path: format!("{CGROUPS}/{}/{QUOTA}", self.path) }
    }

    /// Takes the places of a group that has come, and lets go of those of one that has gone.
    fn take(
        &mut self,
        machine: &Machine,
        drives: &[Option<String>],
        steering: &mut Steering,
    ) -> Result<(), StateError> {
        let old: Vec<_> = self.quota.take().into_iter().collect();
        let old = old.into_iter().chain(self.rates.iter_mut().filter_map(Option::take));
        old.into_iter().try_for_each(|at| steering.disown(at))?;
        (self.taken, self.cores) = (self.uses.id, None);
        self.given.fill([None; 2]);
        if self.taken.is_none() {
            return Ok(());
        }
        let rates = |disk: &String| Place::Rates { group: self.path.clone(), disk: disk.clone() };
        let places = std::iter::once(self.quota_place()).chain(drives.iter().flatten().map(rates));
        let mut lacks = [QUOTA, RATES].map(|_| None);
        let original = |place: Place| {
            let of = usize::from(matches!(place, Place::Rates { .. }));
            let original = Original::of(place.clone(), Knob::find(machine, &place), &machine.sys);
            original.map_err(|absent| lacks[of] = Some((place, absent))).ok()
        };
        let new = places.filter_map(original).collect();
        for at in steering.adopt(new, |place| Knob::find(machine, place))? {
            match steering.place(at) {
                Place::Rates { disk, .. } => {
                    let is_it = |drive: &Option<String>| drive.as_ref() == Some(disk);
                    let own = drives.iter().position(is_it);
                    own.into_iter().for_each(|drive| self.rates[drive] = Some(at));
                }
                _ => self.quota = Some(at),
            }
        }
        let properties = ["CPUWeight=100", "IOWeight=100"];
        for (lack, property) in lacks.into_iter().zip(properties) {
            let Some((place, absent)) = lack else { continue };
            let text = match absent {
                Absent::Missing(_) => {
                    format!("it is missing and not limited; {}", turn_on(&self.path, property))
                }
                absent => format!("it is not limited, for it could not be set back: {absent}"),
            };
            steering.tell(place, text);
        }
        Ok(())
    }
}

/// What a group needs of a limit, of which it has `used` so much of what it was `given`.
fn need(limit: Option<f64>, used: f64, given: Option<f64>) -> f64 {
    match given {
        Some(given) if used >= USED_UP * given => f64::INFINITY,
        _ => (used * MARGIN).max(limit.unwrap_or_default() * NEWCOMER),
    }
}

/// Shares a limit among groups with these needs: their sum is the limit.
fn share(limit: f64, needs: &[f64]) -> Vec<f64> {
    let mut order: Vec<_> = (0..needs.len()).collect();
    order.sort_by(|a, b| needs[*a].total_cmp(&needs[*b]));
    let (mut shares, mut rest) = (vec![0.0; needs.len()], limit);
    for (done, at) in order.iter().enumerate() {
        shares[*at] = needs[*at].min(rest / (needs.len() - done) as f64);
        rest -= shares[*at];
    }
    let spare = rest / needs.len() as f64;
    shares.into_iter().map(|share| share + spare).collect()
}

/// The next lower step.
fn steps(share: f64) -> f64 {
    STEP.powf(share.max(f64::MIN_POSITIVE).log(STEP).floor())
}

/// The quota of `cores`, in a `period` or that found; `None` where that is no less than `found`.
fn quota(found: &str, cores: f64, period: Option<Nanos>) -> Option<String> {
    let (most, own) = found.split_once(' ')?;
    let own = own.parse::<f64>().ok()?;
    let most = most.parse::<f64>().map_or(f64::INFINITY, |most| most / own);
    let period = period.map_or(own, Nanos::micros);
    let quota = (cores * period).max(LEAST_QUOTA.micros());
    (quota / period < most).then(|| format!("{quota:.0} {period:.0}"))
}

/// The rates `asked` for, none above what was `found`; `None` where that is what was found.
fn rates(found: &str, asked: [Option<f64>; 2]) -> Option<String> {
    let mut fields = found.split(' ');
    let mut one = |key: &str, asked: Option<f64>| {
        let found = fields.next().and_then(|field| field.strip_prefix(key))?;
        let most = found.parse::<f64>().unwrap_or(f64::INFINITY);
        let lower = asked.filter(|asked| *asked < most);
        Some(format!("{key}{}", lower.map_or(found.to_owned(), |rate| format!("{rate:.0}"))))
    };
    let text = format!("{} {}", one("rbps=", asked[0])?, one("wbps=", asked[1])?);
    (text != found).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_needs_less_keeps_it_and_the_rest_is_shared() {
        let hungry = f64::INFINITY;
        for (limit, needs, shares) in [
            (10.0, &[hungry, hungry][..], &[5.0, 5.0][..]),
            (10.0, &[1.0, hungry, hungry], &[1.0, 4.5, 4.5]),
            (10.0, &[1.0, 2.0], &[4.5, 5.5]),
            (3.0, &[2.0, 1.0, hungry], &[1.0, 1.0, 1.0]),
        ] {
            assert_eq!(share(limit, needs), shares, "{limit} for {needs:?}");
        }
        assert_eq!(need(Some(100.0), 9.5, Some(10.0)), hungry);
        assert_eq!(need(Some(100.0), 4.0, Some(10.0)), 5.0);
        assert_eq!(need(Some(100.0), 0.0, None), 2.0);
    }

    #[test]
    fn nobody_gets_more_than_was_found() {
        let tenth = Some(Nanos::from_millis(100));
        for (found, cores, period, is) in [
            ("max 100000", 0.5, None, Some("50000 100000")),
            ("max 100000", 2.0, Some(Nanos::from_secs(1)), Some("2000000 1000000")),
            ("50000 100000", 0.5, tenth, None),
            ("50000 100000", 0.25, tenth, Some("25000 100000")),
            ("max 100000", 0.0001, tenth, Some("1000 100000")),
        ] {
            assert_eq!(quota(found, cores, period).as_deref(), is, "{found}: {cores}");
        }
        for (found, asked, is) in [
            ("rbps=max wbps=max", [Some(5.0), None], Some("rbps=5 wbps=max")),
            ("rbps=4 wbps=9", [Some(5.0), Some(6.0)], Some("rbps=4 wbps=6")),
            ("rbps=4 wbps=max", [Some(5.0), None], None),
            ("rbps=max wbps=max", [None, None], None),
        ] {
            assert_eq!(rates(found, asked).as_deref(), is, "{found}: {asked:?}");
        }
    }

    proptest! {
        #[test]
        fn shares_sum_to_the_limit(
            limit in 1.0..1e9f64,
            needs in proptest::collection::vec(prop_oneof![0.0..1e9f64, Just(f64::INFINITY)], 1..9),
        ) {
            let shares = share(limit, &needs);
            prop_assert!((shares.iter().sum::<f64>() - limit).abs() <= 1e-9 * limit);
            let least = needs.iter().copied().fold(f64::INFINITY, f64::min);
            let fair = limit / needs.len() as f64;
            prop_assert!(shares.iter().all(|share| *share >= least.min(fair) * (1.0 - 1e-9)));
            prop_assert!(shares.iter().all(|share| steps(*share) <= *share * (1.0 + 1e-9)));
        }
    }
}
