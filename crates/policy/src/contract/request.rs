//! What an owner asks for. Absent means *released*: back to the operating system or the firmware,
//! as it was found.

use super::class::QosClass;
use super::control::{BackgroundMode, Control, Setting, controls};
use super::topology::{PowerState, Topology};
use super::units::{Hertz, Nanos, Watts};

/// A value that is asked for, and why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wish<T> {
    /// The value.
    pub value: T,
    /// Machine-readable, `policy:why`, such as `pacer:burst-utilisation`.
    pub reason: &'static str,
}

/// One control of every part.
#[derive(Debug, PartialEq, Default)]
pub struct Wishes<T>(Vec<Option<Wish<T>>>);

// Not derived: copying into a vector that is there allocates nothing.
impl<T: Copy> Clone for Wishes<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
    fn clone_from(&mut self, from: &Self) {
        self.0.clone_from(&from.0);
    }
}

impl<T: Setting> Wishes<T> {
    fn new(count: usize) -> Self {
        Self(vec![None; count])
    }

    /// Asks for `value` at part `at`. A wish stands until it is changed or released, and keeps
    /// the reason for which it was first made.
    pub fn ask(&mut self, at: usize, value: T, reason: &'static str) {
        if self.get(at) != Some(value) {
            self.0[at] = Some(Wish { value, reason });
        }
    }

    /// Asks for nothing any more.
    pub fn release(&mut self, at: usize) {
        self.0[at] = None;
    }

    /// What is asked for.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<T> {
        self.wish(at).map(|wish| wish.value)
    }

    /// What is asked for, and why.
    #[must_use]
    pub fn wish(&self, at: usize) -> Option<Wish<T>> {
        self.0.get(at).copied().flatten()
    }

    /// How many parts there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the server has no such part.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn combine(&mut self, other: &Self, control: Control) {
        let combine = control.row().combine;
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = match (*own, *other) {
                (Some(a), Some(b)) if combine.of(a.value, b.value) == a.value => Some(a),
                (_, Some(b)) => Some(b),
                (a, None) => a,
            };
        }
    }
}

macro_rules! request {
    ($($(#[$text:meta])* $kind:ident $column:ident: $type:ty, |$($arg:pat_param),*| $found:expr,
       $row:tt)*) => {
        /// What an owner asks for: each control of the table, by part.
        #[derive(Debug, PartialEq, Default)]
        pub struct Request {
            $($(#[$text])* pub $column: Wishes<$type>,)*
        }

        impl Clone for Request {
            fn clone(&self) -> Self {
                Self { $($column: self.$column.clone(),)* }
            }
            fn clone_from(&mut self, from: &Self) {
                $(self.$column.clone_from(&from.$column);)*
            }
        }

        impl Request {
            /// Everything released.
            #[must_use]
            pub fn new(topology: &Topology) -> Self {
                Self {
                    $($column: Wishes::new(Control::$kind.row().domain.count(topology)),)*
                }
            }

            /// Adds another owner's request, as the table says that the two combine.
            pub fn combine(&mut self, other: &Self) {
                $(self.$column.combine(&other.$column, Control::$kind);)*
            }

            /// Whether anything is asked of `control`.
            #[must_use]
            pub fn asks(&self, control: Control) -> bool {
                match control {
                    $(Control::$kind => self.$column.0.iter().any(Option::is_some),)*
                }
            }
        }
    };
}
controls!(request);

impl Request {
    /// Asks for waiting jobs of `class` to be let in, or kept waiting.
    pub fn ask_admit(&mut self, class: QosClass, admit: bool, reason: &'static str) {
        self.admit.ask(class as usize, admit, reason);
    }

    /// Asks for a mode of background work.
    pub fn ask_background(&mut self, mode: BackgroundMode, reason: &'static str) {
        self.background.ask(0, mode, reason);
    }
}

/// Two owners of a control that can have only one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("both {first} and {second} set {control}, which can have only one owner")]
pub struct Conflict {
    /// One owner.
    pub first: Owner,
    /// The other.
    pub second: Owner,
    /// What both set.
    pub control: Control,
}

/// Who may ask for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The policy, or several that steer different controls.
    Policy,
    /// Who caps what policies of several resources ask for.
    Coordinator,
    /// The operator, who holds settings by hand.
    Operator,
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Policy => "the policy",
            Self::Coordinator => "the coordinator",
            Self::Operator => "the operator",
        })
    }
}
