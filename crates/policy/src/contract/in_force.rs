//! What the guard gave of what was asked for, why, and what became of it.

use super::class::QosClass;
use super::control::{BackgroundMode, Control, Setting, controls};
use super::request::Wish;
use super::row::Unit;
use super::topology::{PowerState, Topology, UNKNOWN};
use super::units::{Hertz, Nanos, Watts};

/// The reason of a control that nobody asks anything of, and that the guard leaves alone.
pub const RELEASED: &str = "guard:released";

/// One control of one part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Given<T> {
    /// What is asked for; `None` is released.
    pub asked: Option<T>,
    /// What is in force; `None` is released.
    pub given: Option<T>,
    /// Why: the asker's reason, or the guard's where it gave something else.
    pub reason: &'static str,
}

impl<T: Setting> Given<T> {
    /// Whether the guard gave something else than was asked for.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.asked != self.given
    }
}

/// Whether a value is one, and does not stand for a frequency that nobody knows.
fn is_known(control: Control, number: f64) -> bool {
    control.row().unit != Unit::Hertz || number != UNKNOWN.0
}

/// One control of every part.
#[derive(Debug, PartialEq, Default)]
pub struct Column<T> {
    given: Vec<Given<T>>,
    /// What each is when released, where that is known.
    found: Vec<Option<T>>,
}

impl<T: Setting> Column<T> {
    fn new(found: Vec<Option<T>>) -> Self {
        Self {
            given: vec![Given { asked: None, given: None, reason: RELEASED }; found.len()],
            found,
        }
    }

    /// Asked, given and why.
    #[must_use]
    pub fn at(&self, at: usize) -> Given<T> {
        self.given[at]
    }

    /// What part `at` is at: what was given, or what it is when released; `None` where that is
    /// for the board or the operating system to know.
    #[must_use]
    pub fn value(&self, at: usize) -> Option<T> {
        self.given.get(at)?.given.or(self.found[at])
    }

    /// The same of every part.
    pub fn values(&self) -> impl Iterator<Item = Option<T>> + '_ {
        self.given.iter().zip(&self.found).map(|(given, found)| given.given.or(*found))
    }

    /// How many parts there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.given.len()
    }

    /// Whether the server has no such part.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// Gives what is asked for, or what the guard rules instead.
    pub(crate) fn give(
        &mut self,
        at: usize,
        wish: Option<Wish<T>>,
        ruling: Option<(Option<T>, &'static str)>,
    ) {
        let asked = wish.map(|wish| wish.value);
        let followed = (asked, wish.map_or(RELEASED, |wish| wish.reason));
        let (given, reason) = ruling.filter(|(given, _)| *given != asked).unwrap_or(followed);
        self.given[at] = Given { asked, given, reason };
    }

    /// The change of part `at` since `before`.
    fn change(&self, before: &Self, at: usize) -> Option<(Option<f64>, Option<f64>, Option<f64>)> {
        let (now, then) = (self.given[at], before.given.get(at).copied()?);
        let number = |value: Option<T>| value.or(self.found[at]).map(T::number);
        let refused = now.is_held() && (!then.is_held() || now.reason != then.reason);
        let (from, to) = (before.value(at), self.value(at));
        (from != to || refused).then(|| (number(from), number(to), number(now.asked)))
    }
}

// Not derived: copying into vectors that are there allocates nothing.
impl<T: Copy> Clone for Column<T> {
    fn clone(&self) -> Self {
        Self { given: self.given.clone(), found: self.found.clone() }
    }
    fn clone_from(&mut self, from: &Self) {
        self.given.clone_from(&from.given);
        self.found.clone_from(&from.found);
    }
}

/// One change of one control, or one refusal to change it: the answer to "why did it do that?".
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// When, since the start of the run.
    pub at: Nanos,
    /// What was decided on.
    pub control: Control,
    /// Of which part, counted from 0 as in the topology.
    pub part: u16,
    /// Value before, in the control's unit; `None` where whoever it is released to decides.
    pub from: Option<f64>,
    /// Value from now on.
    pub to: Option<f64>,
    /// What was asked for.
    pub asked: Option<f64>,
    /// Machine-readable reason, `policy:why`; of the guard where it gave something else.
    pub reason: &'static str,
}

impl Decision {
    /// Whether the guard gave something else than was asked for.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.asked != self.to
    }
}

macro_rules! in_force {
    ($($(#[$text:meta])* $kind:ident $column:ident: $type:ty,
       |$topology:pat_param, $index:pat_param| $found:expr, $row:tt)*) => {
        /// What is in force: each control of the table, by part.
        #[derive(Debug, PartialEq, Default)]
        pub struct InForce {
            $($(#[$text])* pub $column: Column<$type>,)*
            /// Whether the guard wants the fans at full speed, whoever else sets them.
            pub emergency: bool,
        }

        impl InForce {
            /// Everything released.
            #[must_use]
            pub fn new(topology: &Topology) -> Self {
                $(let $column = {
                    let found = |$topology: &Topology, $index: usize| -> Option<$type> { $found };
                    let count = Control::$kind.row().domain.count(topology);
                    Column::new((0..count).map(|at| found(topology, at)).collect())
                };)*
                Self { $($column,)* emergency: false }
            }

            fn change(&self, before: &Self, at: Nanos, control: Control, part: usize)
                -> Option<Decision> {
                match control {
                    $(Control::$kind => {
                        let (from, to, asked) = self.$column.change(&before.$column, part)?;
                        let (part, reason) = (part as u16, self.$column.at(part).reason);
                        Some(Decision { at, control, part, from, to, asked, reason })
                    })*
                }
            }

            /// Gives all of `request`, to try a policy without a guard. No plant is run so.
            pub fn follow(&mut self, request: &super::request::Request) {
                $(for at in 0..self.$column.len() {
                    self.$column.give(at, request.$column.wish(at), None);
                })*
            }

            /// What part `part` of `control` is at, in its unit; `None` where that is for the board
            /// or the operating system to know.
            #[must_use]
            pub fn number(&self, control: Control, part: usize) -> Option<f64> {
                let number = match control {
                    $(Control::$kind => self.$column.value(part).map(Setting::number),)*
                };
                number.filter(|number| is_known(control, *number))
            }

            /// Whether part `part` of `control` is given anything; released where it is not.
            #[must_use]
            pub fn is_given(&self, control: Control, part: usize) -> bool {
                match control {
                    $(Control::$kind => self.$column.at(part).given.is_some(),)*
                }
            }

            /// What is asked of part `part` of `control` and what is given, in its unit, and why.
            #[must_use]
            pub fn at(&self, control: Control, part: usize) -> Given<f64> {
                match control {
                    $(Control::$kind => {
                        let Given { asked, given, reason } = self.$column.at(part);
                        let number = |value: Option<$type>| {
                            value.map(Setting::number).filter(|number| is_known(control, *number))
                        };
                        Given { asked: number(asked), given: number(given), reason }
                    })*
                }
            }

            fn why_held(&self, control: Control, part: usize) -> Option<&'static str> {
                match control {
                    $(Control::$kind => {
                        let given = self.$column.at(part);
                        given.is_held().then_some(given.reason)
                    })*
                }
            }

            /// How many parts `control` has.
            #[must_use]
            pub fn count(&self, control: Control) -> usize {
                match control {
                    $(Control::$kind => self.$column.len(),)*
                }
            }
        }

        impl Clone for InForce {
            fn clone(&self) -> Self {
                Self { $($column: self.$column.clone(),)* emergency: self.emergency }
            }
            fn clone_from(&mut self, from: &Self) {
                $(self.$column.clone_from(&from.$column);)*
                self.emergency = from.emergency;
            }
        }
    };
}
controls!(in_force);

/// What is in force for one core group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupSetting {
    /// Cores that take new work.
    pub active: u16,
    /// Frequency of the active cores.
    pub frequency: Hertz,
}

impl InForce {
    /// What has changed since `before`, and what is newly refused.
    pub fn decisions<'a>(
        &'a self,
        before: &'a Self,
        at: Nanos,
    ) -> impl Iterator<Item = Decision> + 'a {
        Control::ALL.iter().flat_map(move |control| {
            let parts = 0..self.count(*control);
            parts.filter_map(move |part| self.change(before, at, *control, part))
        })
    }

    /// Where the guard gives something else than is asked for: control, part and reason.
    pub fn held(&self) -> impl Iterator<Item = (Control, usize, &'static str)> + '_ {
        Control::ALL.iter().flat_map(move |control| {
            let why = move |part| Some((*control, part, self.why_held(*control, part)?));
            (0..self.count(*control)).filter_map(why)
        })
    }

    /// Cores and frequency of `group`, within its limits.
    #[must_use]
    pub fn group(&self, group: usize) -> GroupSetting {
        let active = self.active_cores.value(group).unwrap_or_default();
        let frequency = self.frequency.value(group).unwrap_or_default();
        self.limited(group, GroupSetting { active, frequency })
    }

    /// What the limits of `group` leave of a setting.
    #[must_use]
    pub fn limited(&self, group: usize, setting: GroupSetting) -> GroupSetting {
        let most = self.core_limit.value(group).unwrap_or(u16::MAX);
        let highest = self.frequency_limit.value(group).unwrap_or(Hertz(f64::INFINITY));
        let GroupSetting { active, frequency } = setting;
        GroupSetting { active: active.min(most), frequency: frequency.min(highest) }
    }

    /// Cores and frequency of every group.
    pub fn groups(&self) -> impl Iterator<Item = GroupSetting> + '_ {
        (0..self.active_cores.len()).map(|group| self.group(group))
    }

    /// Power state of `drive`.
    #[must_use]
    pub fn state(&self, drive: usize) -> PowerState {
        self.power_state.value(drive).unwrap_or_default()
    }

    /// Power state of every drive.
    pub fn states(&self) -> impl Iterator<Item = PowerState> + '_ {
        self.power_state.values().map(Option::unwrap_or_default)
    }

    /// How background work may run.
    #[must_use]
    pub fn background(&self) -> BackgroundMode {
        self.background.value(0).unwrap_or_default()
    }

    /// Frequency ceiling over cores on `socket`; the lowest of all sockets where they are on no
    /// one socket.
    #[must_use]
    pub fn ceiling(&self, socket: Option<u16>) -> Hertz {
        let caps = self.frequency_cap.values().enumerate();
        let over = caps.filter(|(at, _)| socket.is_none_or(|socket| usize::from(socket) == *at));
        over.filter_map(|(_, cap)| cap).fold(Hertz(f64::INFINITY), Hertz::min)
    }

    /// Share of the time for which the job in slot `job` may run.
    #[must_use]
    pub fn share(&self, job: usize) -> f64 {
        self.job_share.value(job).unwrap_or(1.0)
    }

    /// Whether waiting jobs of `class` may start.
    #[must_use]
    pub fn admits(&self, class: QosClass) -> bool {
        self.admit.value(class as usize).unwrap_or(true)
    }

    /// The writes that take the drives from `current` to what is in force, in an order that keeps
    /// the sum of caps within the budget after each one: lower caps first. The plant carries out
    /// one write at a time, waits for it to take effect, and carries out no later one where it
    /// failed.
    pub fn drive_writes<'a>(
        &'a self,
        current: &'a [PowerState],
    ) -> impl Iterator<Item = (usize, PowerState)> + 'a {
        let changes = move |lower: bool| {
            current.iter().copied().zip(self.states()).enumerate().filter_map(
                move |(drive, (from, to))| {
                    (from != to && (to > from) == lower).then_some((drive, to))
                },
            )
        };
        changes(true).chain(changes(false))
    }
}

/// What became of a control that was to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// It is as it was given.
    #[default]
    Done,
    /// The device did not take it.
    Refused,
    /// Somebody else has changed it.
    Changed,
}

impl Outcome {
    /// Its name in files and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Changed => "changed",
        }
    }
}

/// What became of everything that was given, control by control and part by part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied(Vec<Vec<Outcome>>);

impl Applied {
    /// Everything done.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let count = |control: &Control| control.row().domain.count(topology);
        Self(Control::ALL.iter().map(|control| vec![Outcome::Done; count(control)]).collect())
    }

    /// Forgets what was said of the last period.
    pub fn begin(&mut self) {
        self.0.iter_mut().for_each(|parts| parts.fill(Outcome::Done));
    }

    /// Says what became of a control.
    pub fn set(&mut self, control: Control, part: usize, outcome: Outcome) {
        self.0[control as usize][part] = outcome;
    }

    /// Says that no part took what it was given.
    pub fn refuse_all(&mut self, control: Control) {
        self.0[control as usize].fill(Outcome::Refused);
    }

    /// What became of it.
    #[must_use]
    pub fn of(&self, control: Control, part: usize) -> Outcome {
        self.0[control as usize][part]
    }
}
