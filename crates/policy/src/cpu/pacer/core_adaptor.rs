//! Core Adaptor: the coarse-grained method, power gating (§IV-C).
//!
//! One desired utilisation for the whole server, since there is one latency; each core group is
//! sized for it on its own utilisation (§IV-E). Four things keep the law from running away:
//!
//! * `u_desired` is bounded, and falls from what is really in use when `plf` is broken, not from
//!   where it had wound up while other bounds (minimum cores, floors) held.
//! * `u_desired` does not rise while only a floor (see `memory.rs`) keeps a group from shrinking,
//!   or the group would leap when the floor goes.
//! * With slack no group grows and with a loss none shrinks, whatever the noise in `u_cur` says.
//! * With a loss each group grows by at least a tenth. Which group is short cannot be told from
//!   one latency, and [`desired`] alone may be slow to answer a small excess.

use crate::topology::GroupSpec;

/// `n_desired = ⌈α · n_cur · u_cur / u_desired⌉`, with `work` = n_cur · u_cur.
pub(super) fn desired(alpha: f64, work: f64, u_desired: f64) -> u16 {
    // A float converted to an integer saturates; the caller bounds it by the group's cores.
    (alpha * work / u_desired).ceil() as u16
}

/// One core group as the adaptor sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizing<'a> {
    pub spec: &'a GroupSpec,
    /// `n_cur`.
    pub active: u16,
    /// `n_cur · u_cur`: cores' worth of useful work; `None` when not sensed.
    pub work: Option<f64>,
    /// Fewer cores than this have broken `plf`.
    pub floor: u16,
}

impl Sizing<'_> {
    fn utilisation(&self) -> Option<f64> {
        self.work.map(|work| work / f64::from(self.active.max(1)))
    }

    fn least(&self) -> u16 {
        self.spec.min_cores.max(1).max(self.floor).min(self.spec.cores)
    }
}

/// Utilisation of the busiest group.
pub(super) fn busiest<'a>(groups: impl Iterator<Item = Sizing<'a>>) -> Option<f64> {
    groups.filter_map(|group| group.utilisation()).max_by(f64::total_cmp)
}

/// Utilisation of all active cores together.
pub(super) fn overall<'a>(groups: impl Iterator<Item = Sizing<'a>>) -> Option<f64> {
    let (work, cores) = groups
        .filter_map(|group| Some((group.work?, f64::from(group.active))))
        .fold((0.0, 0.0), |(work, cores), (w, n)| (work + w, cores + n));
    (cores > 0.0).then(|| work / cores)
}

/// The state of the law.
#[derive(Debug, Clone, Copy)]
pub(super) struct CoreAdaptor {
    alpha: f64,
    beta: f64,
    u_max: f64,
    u_desired: f64,
}

impl CoreAdaptor {
    pub fn new(alpha: f64, beta: f64, u_max: f64) -> Self {
        Self { alpha, beta, u_max, u_desired: u_max }
    }

    /// Starts from the server's overall utilisation at full resources.
    pub fn start(&mut self, overall: Option<f64>) {
        self.u_desired = self.bounded(overall.unwrap_or(self.u_max));
    }

    /// `u_desired = u_desired,old + β · loss_distance`, bounded. `busiest` is what the utilisation
    /// really is.
    pub fn update(&mut self, loss_distance: f64, busiest: Option<f64>) {
        let mut old = self.u_desired;
        if loss_distance < 0.0 {
            old = old.min(busiest.map_or(old, |u| u * self.alpha));
        }
        self.u_desired = self.bounded(old + self.beta * loss_distance);
    }

    /// The same with the highest utilisation that may be desired.
    pub fn at_most(self) -> Self {
        Self { u_desired: self.u_max, ..self }
    }

    /// Cores for a group when there is slack: never more than now.
    pub fn fewer(&self, group: Sizing) -> u16 {
        let Some(work) = group.work else { return group.active };
        let most = group.active.max(group.least());
        desired(self.alpha, work, self.u_desired).clamp(group.least(), most)
    }

    /// Whether a floor alone keeps the group from shrinking.
    pub fn held(&self, group: Sizing) -> bool {
        let free = Sizing { floor: 0, ..group };
        self.fewer(group) == group.active && self.fewer(free) < group.active
    }

    /// Cores for a group when `plf` is broken: a tenth more than now at least.
    pub fn more(&self, group: Sizing) -> u16 {
        let wanted = group.work.map_or(0, |work| desired(self.alpha, work, self.u_desired));
        let grown = group.active.saturating_add((group.active / 10).max(1));
        wanted.max(grown).max(group.least()).min(group.spec.cores)
    }

    /// Cores for a group that is so busy that the next fluctuation would look like a burst;
    /// `None` when it is not.
    pub fn relieve(&self, group: Sizing, limit: f64) -> Option<u16> {
        let work = group.work.filter(|work| work / f64::from(group.active.max(1)) > limit)?;
        let wanted = desired(self.alpha, work, self.u_max).min(group.spec.cores);
        (wanted > group.active).then_some(wanted)
    }

    fn bounded(&self, u: f64) -> f64 {
        u.clamp(0.01, self.u_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::CoreRole;

    const SPEC: GroupSpec =
        GroupSpec { role: CoreRole::KeyValue, cores: 48, min_cores: 2, socket: None };

    fn sizing(active: u16, work: f64) -> Sizing<'static> {
        Sizing { spec: &SPEC, active, work: Some(work), floor: 0 }
    }

    fn adaptor(u: f64) -> CoreAdaptor {
        let mut adaptor = CoreAdaptor::new(1.0, 0.1, 0.7);
        adaptor.start(overall([sizing(24, 24.0 * u), sizing(12, 12.0 * u)].into_iter()));
        adaptor
    }

    #[test]
    fn the_paper_s_formula() {
        // 48 cores at 10 %, wanted at 20 %, 5 % slope: 25.2.
        assert_eq!(desired(1.05, 4.8, 0.2), 26);
        assert_eq!(desired(1.0, 4.8, 0.25), 20);
        assert_eq!(desired(1.0, 0.0, 0.25), 0);
    }

    #[test]
    fn desired_utilisation_follows_the_distance_within_bounds() {
        let mut adaptor = adaptor(0.1);
        adaptor.update(1.0, Some(0.1));
        assert!((adaptor.u_desired - 0.2).abs() < 1e-12);
        adaptor.update(-0.5, Some(0.2));
        assert!((adaptor.u_desired - 0.15).abs() < 1e-12);
        for _ in 0..100 {
            adaptor.update(1.0, Some(0.2));
        }
        assert_eq!(adaptor.u_desired, 0.7);
        // What had wound up does not have to unwind first.
        adaptor.update(-0.1, Some(0.2));
        assert!((adaptor.u_desired - 0.19).abs() < 1e-12);
        adaptor.update(-1e9, Some(0.2));
        assert_eq!(adaptor.u_desired, 0.01);
    }

    #[test]
    fn slack_never_grows_a_group_and_loss_never_shrinks_one() {
        let adaptor = adaptor(0.2);
        assert_eq!(adaptor.fewer(sizing(10, 4.0)), 10);
        assert_eq!(adaptor.fewer(sizing(30, 4.0)), 20);
        assert_eq!(adaptor.more(sizing(30, 4.0)), 33);
        assert_eq!(adaptor.more(sizing(30, 8.0)), 40);
        assert_eq!(adaptor.more(sizing(4, 0.0)), 5);
        assert_eq!(adaptor.more(sizing(48, 40.0)), 48);
    }

    #[test]
    fn minimum_cores_and_floors_hold() {
        let adaptor = adaptor(0.5);
        assert_eq!(adaptor.fewer(sizing(10, 0.1)), 2);
        assert_eq!(adaptor.fewer(Sizing { floor: 7, ..sizing(10, 0.1) }), 7);
        assert_eq!(adaptor.fewer(Sizing { work: None, ..sizing(10, 0.1) }), 10);
    }

    #[test]
    fn held_by_a_floor_but_not_by_the_minimum() {
        let adaptor = adaptor(0.5);
        assert!(adaptor.held(Sizing { floor: 10, ..sizing(10, 0.1) }));
        assert!(!adaptor.held(Sizing { floor: 9, ..sizing(10, 0.1) }));
        assert!(!adaptor.held(sizing(2, 0.1)));
    }

    #[test]
    fn a_group_too_busy_is_relieved() {
        let adaptor = adaptor(0.5);
        assert_eq!(adaptor.relieve(sizing(10, 7.2), 0.75), None);
        assert_eq!(adaptor.relieve(sizing(10, 7.6), 0.75), Some(11));
        assert_eq!(adaptor.relieve(sizing(48, 47.0), 0.75), None);
    }
}
