//! Control groups of background work, which have weight while a policy lets it race. They come and
//! go with what runs in them.

use std::os::unix::fs::MetadataExt;

use ebb_policy::Outcome;
use ebb_policy::units::Nanos;

use crate::act::groups::CGROUPS;
use crate::act::knob::{Knob, Place};
use crate::act::originals::Original;
use crate::act::owned::StateError;
use crate::act::steering::{Steering, refused, worse};
use crate::find::machine::Machine;

/// What it is given: of the default, 100, ten times as much.
const RACE: [(&str, &str); 2] = [("cpu.weight", "1000"), ("io.weight", "default 1000")];

/// All such groups.
#[derive(Debug)]
pub struct Background {
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    path: String,
    /// Which coming of the group it is; `None` while it is away.
    id: Option<u64>,
    /// Its weights, by their places.
    weights: Vec<(usize, &'static str)>,
}

impl Background {
    /// Those with these paths, as far as they are here.
    #[must_use]
    pub fn new(groups: &[String], machine: &Machine, steering: &mut Steering) -> Self {
        let group = |path: &String| Group { path: path.clone(), id: None, weights: Vec::new() };
        let mut background = Self { groups: groups.iter().map(group).collect() };
        background.follow(machine, steering);
        for group in background.groups.iter().filter(|group| group.id.is_none()) {
            let path = format!("{CGROUPS}/{}", group.path);
            let text = "hold.background: it is not there, and has weight once it is";
            steering.tell(Place::File { path }, text.to_owned());
        }
        background
    }

    /// Takes in groups that have come, and lets go of those that have gone.
    pub fn follow(&mut self, machine: &Machine, steering: &mut Steering) {
        for group in &mut self.groups {
            let folder = machine.sys.path(format!("{CGROUPS}/{}", group.path));
            let id = folder.metadata().ok().map(|folder| folder.ino());
            if id == group.id {
                continue;
            }
            group.id = id;
            if let Err(error) = group.take(machine, steering) {
                let path = format!("{CGROUPS}/{}", group.path);
                steering.tell(Place::File { path }, format!("it is left as it is: {error}"));
            }
        }
    }

    /// Lets it race, or gives back its weights.
    pub fn set(&self, races: bool, steering: &mut Steering, now: Nanos) -> Outcome {
        let mut weights = self.groups.iter().flat_map(|group| &group.weights).peekable();
        let nowhere = refused(races && weights.peek().is_none());
        weights.fold(nowhere, |outcome, (at, value)| {
            worse(outcome, steering.set(*at, races.then_some(*value), now))
        })
    }
}

impl Group {
    fn take(&mut self, machine: &Machine, steering: &mut Steering) -> Result<(), StateError> {
        self.weights.drain(..).try_for_each(|(at, _)| steering.disown(at))?;
        if self.id.is_none() {
            return Ok(());
        }
        let mut new = Vec::new();
        for (file, _) in RACE {
            let place = Place::File { path: format!("{CGROUPS}/{}/{file}", self.path) };
            let knob = Knob::find(machine, &place);
            match Original::of(place.clone(), knob, &machine.sys) {
                Ok(original) => new.push(original),
                Err(absent) => {
                    let why = "it is not steered, for it could not be set back";
                    steering.tell(place, format!("{why}: {absent}"));
                }
            }
        }
        for at in steering.adopt(new, |place| Knob::find(machine, place))? {
            let of = steering.place(at).to_string();
            let value = RACE.iter().find(|(file, _)| of.ends_with(file));
            self.weights.extend(value.map(|(_, value)| (at, *value)));
        }
        Ok(())
    }
}
