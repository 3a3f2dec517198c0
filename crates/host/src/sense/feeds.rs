//! Feeds of a server with several supplies: how much it may draw so that none of those that are
//! left carries more than it may, though the supplies share the load unevenly.

use ebb_policy::units::Watts;

use crate::find::hwmon::{CHIPS, Chip, is_of};
use crate::find::meters::{self, LEAST_VOLTS};
use crate::sys::Sys;

/// A feed that is back counts after so many readings in a row.
const BACK: u32 = 3;
/// How much of a reading is learnt: supplies share a load alike for hours.
const LEARN: f64 = 0.1;

/// A feed as the operator states it.
#[derive(Debug, Clone, PartialEq)]
pub struct StatedFeed {
    /// What the operator calls it.
    pub name: String,
    /// Most that the server may take from it.
    pub limit: Watts,
    /// Devices of the supplies that it feeds, such as `0058 at 0000:00:1f.4, bus 0` or `3-0058`.
    pub supplies: Vec<String>,
}

/// What the feeds allow.
#[derive(Debug, Clone, PartialEq)]
pub struct Allowed {
    /// Most that the server may draw.
    pub limit: Watts,
    /// Which feeds have no input.
    pub lost: Vec<String>,
}

/// All feeds.
#[derive(Debug)]
pub struct Feeds(Vec<Feed>);

#[derive(Debug)]
struct Feed {
    stated: StatedFeed,
    /// The folder of each supply's chip, as it was last found.
    folders: Vec<Option<String>>,
    /// What it carries in the mean of some readings, where its supplies tell.
    watts: Option<f64>,
    /// Readings in a row with input; those of a feed that counts are [`BACK`].
    good: u32,
}

/// What a supply tells.
#[derive(Debug, Default)]
pub(crate) struct Input {
    pub volts: Option<f64>,
    pub watts: Option<f64>,
    /// It says that its input is too low.
    fails: bool,
}

impl Feeds {
    /// Those as stated.
    #[must_use]
    pub fn new(stated: Vec<StatedFeed>) -> Self {
        let feed = |stated: StatedFeed| {
            let folders = vec![None; stated.supplies.len()];
            Feed { stated, folders, watts: None, good: BACK }
        };
        Self(stated.into_iter().map(feed).collect())
    }

    /// The supplies that no chip was found for, each with its feed.
    pub fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(Feed::missing)
    }

    /// Reads all supplies; `None` where there is no feed.
    pub fn read(&mut self, sys: &Sys) -> Option<Allowed> {
        let inputs: Vec<Vec<_>> = self.0.iter_mut().map(|feed| feed.inputs(sys)).collect();
        // Where others carry load, one that carries none and does not tell its voltage has none.
        let busy = inputs.iter().flatten().flatten().any(|input| input.watts > Some(0.0));
        let has = |input: &Option<Input>| match input {
            None => false,
            Some(Input { fails: true, .. }) => false,
            Some(Input { volts: Some(volts), .. }) => *volts >= LEAST_VOLTS,
            Some(Input { watts, .. }) => !busy || watts.is_none_or(|watts| watts > 0.0),
        };
        for (feed, inputs) in self.0.iter_mut().zip(&inputs) {
            feed.good = if inputs.iter().any(has) { (feed.good + 1).min(BACK) } else { 0 };
            let watts = inputs.iter().flatten().map(|input| input.watts);
            let watts = watts.sum::<Option<f64>>().filter(|_| feed.good > 0);
            feed.watts = match (watts, feed.watts) {
                (Some(now), Some(before)) => Some(before + LEARN * (now - before)),
                (now, before) => now.or(before),
            };
        }
        let lost = |feed: &&Feed| feed.good < BACK;
        let names = self.0.iter().filter(lost).map(|feed| feed.stated.name.clone()).collect();
        // A server that runs has input: where all tell the contrary any of them may be the one.
        let left = self.0.iter().filter(|feed| !lost(feed));
        let limit = match left.clone().count() {
            0 => self.0.iter().map(|feed| feed.stated.limit).reduce(Watts::min)?,
            _ => limit(left)?,
        };
        Some(Allowed { limit, lost: names })
    }
}

/// What the server may draw from feeds among which the load is shared as it is now; in equal parts
/// where that is not known.
fn limit<'a>(feeds: impl Iterator<Item = &'a Feed> + Clone) -> Option<Watts> {
    let known = feeds.clone().map(|feed| feed.watts).sum::<Option<f64>>();
    let equal = 1.0 / feeds.clone().count() as f64;
    let of = |feed: &Feed| {
        let share = match (known, feed.watts) {
            (Some(all), Some(own)) if all > 0.0 => own / all,
            _ => equal,
        };
        // In whole parts of a hundred, so that it does not change with each reading.
        Watts((feed.stated.limit.0 / (share * 100.0).ceil().max(1.0) * 100.0).floor())
    };
    feeds.map(of).reduce(Watts::min)
}

impl Feed {
    fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.stated.supplies.iter().zip(&self.folders);
        let missing = all.filter(|(_, folder)| folder.is_none());
        missing.map(|(supply, _)| (supply.as_str(), &*self.stated.name))
    }

    /// What each of its supplies tells; `None` of one that does not answer.
    fn inputs(&mut self, sys: &Sys) -> Vec<Option<Input>> {
        let read = |(device, folder): (&String, &mut Option<String>)| {
            let is_it = |folder: &String| is_of(sys, folder, device);
            if !folder.as_ref().is_some_and(is_it) {
                let chips = sys.numbered(CHIPS, "hwmon").into_iter();
                *folder = chips.map(|chip| format!("{CHIPS}/{chip}")).find(is_it);
            }
            input(sys, &Chip::at(sys, folder.as_ref()?)?)
        };
        self.stated.supplies.iter().zip(&mut self.folders).map(read).collect()
    }
}

/// The input of a supply.
pub(crate) fn input(sys: &Sys, chip: &Chip) -> Option<Input> {
    let mut input = Input::default();
    if let Some(at) = chip.volts_in(sys) {
        let number = |what: &str| sys.number::<i64>(format!("{}/{at}_{what}", chip.folder)).ok();
        input.volts = number("input").map(|millis| millis as f64 / 1e3);
        input.fails = ["lcrit_alarm", "fault"].iter().any(|what| number(what) > Some(0));
    }
    let file = meters::input_file(sys, chip);
    let watts =
        file.and_then(|file| sys.number::<i64>(file).ok()).map(|micros| micros as f64 / 1e6);
    input.watts = watts.filter(|watts| (0.0..=meters::MOST.0).contains(watts));
    (input.volts.is_some() || input.watts.is_some()).then_some(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        root: tempfile::TempDir,
        feeds: Feeds,
    }

    impl Bench {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let feed = |(name, limit, supplies): (&str, f64, &[&str])| StatedFeed {
                name: name.to_owned(),
                limit: Watts(limit),
                supplies: supplies.iter().map(|supply| (*supply).to_owned()).collect(),
            };
            let feeds = [("A", 200.0, &["3-0058"][..]), ("B", 200.0, &["3-0059"])].map(feed);
            let this = Self { feeds: Feeds::new(feeds.to_vec()), root };
            for (at, device) in ["3-0058", "3-0059"].into_iter().enumerate() {
                this.at(at, &[("name", "cffps2"), ("in1_label", "vin"), ("power1_label", "pin")]);
                let link = this.folder(at).join("device");
                std::os::unix::fs::symlink(format!("../../../devices/{device}"), link).unwrap();
            }
            this
        }

        fn folder(&self, at: usize) -> std::path::PathBuf {
            self.root.path().join(format!("{CHIPS}/hwmon{at}"))
        }

        fn at(&self, at: usize, files: &[(&str, &str)]) {
            std::fs::create_dir_all(self.folder(at)).unwrap();
            files.iter().for_each(|(name, text)| {
                std::fs::write(self.folder(at).join(name), text).unwrap();
            });
        }

        /// Volts and watts of both supplies.
        fn shows(&self, supplies: [(f64, f64); 2]) {
            for (at, (volts, watts)) in supplies.into_iter().enumerate() {
                let [volts, watts] = [volts * 1e3, watts * 1e6].map(|number| format!("{number}"));
                self.at(at, &[("in1_input", &volts), ("power1_input", &watts)]);
            }
        }

        fn read(&mut self) -> (f64, Vec<String>) {
            let Allowed { limit, lost } = self.feeds.read(&Sys::new(self.root.path())).unwrap();
            (limit.0, lost)
        }
    }

    #[test]
    fn a_lost_feed_leaves_what_the_other_may_carry() {
        let mut bench = Bench::new();
        bench.shows([(230.0, 150.0), (230.0, 150.0)]);
        assert_eq!(bench.read(), (400.0, vec![]));
        bench.shows([(0.0, 0.0), (230.0, 300.0)]);
        assert_eq!(bench.read(), (200.0, vec!["A".to_owned()]));
        bench.shows([(230.0, 150.0), (230.0, 150.0)]);
        let back: Vec<_> = (0..3).map(|_| bench.read().1.len()).collect();
        assert_eq!(back, [1, 1, 0], "it comes back with the third good reading");
        // One that rests beside the other has input.
        bench.shows([(230.0, 0.0), (230.0, 300.0)]);
        assert_eq!(bench.read().1, [""; 0]);
    }

    #[test]
    fn supplies_that_share_unevenly_leave_less() {
        let mut bench = Bench::new();
        bench.shows([(230.0, 180.0), (230.0, 120.0)]);
        assert_eq!(bench.read().0, 333.0);
        bench.shows([(230.0, 120.0), (230.0, 180.0)]);
        (0..100).for_each(|_| drop(bench.read()));
        assert_eq!(bench.read().0, 333.0);
    }

    #[test]
    fn what_does_not_answer_or_says_that_it_fails_is_lost() {
        let mut bench = Bench::new();
        bench.shows([(230.0, 150.0), (230.0, 150.0)]);
        bench.at(0, &[("in1_lcrit_alarm", "1")]);
        assert_eq!(bench.read().1, ["A"]);
        bench.at(0, &[("in1_lcrit_alarm", "0")]);
        (0..3).for_each(|_| drop(bench.read()));
        assert_eq!(bench.read().1, [""; 0]);
        std::fs::remove_dir_all(bench.folder(0)).unwrap();
        assert_eq!(bench.read(), (200.0, vec!["A".to_owned()]));
        // It runs, so that one of both has input: which is not known.
        std::fs::remove_dir_all(bench.folder(1)).unwrap();
        assert_eq!(bench.read(), (200.0, vec!["A".to_owned(), "B".to_owned()]));
        assert_eq!(Feeds::new(Vec::new()).read(&Sys::new(bench.root.path())), None);
    }

    #[test]
    fn without_a_voltage_it_is_what_a_supply_carries_that_counts() {
        let mut bench = Bench::new();
        bench.shows([(230.0, 0.0), (230.0, 300.0)]);
        (0..2).for_each(|at| std::fs::remove_file(bench.folder(at).join("in1_label")).unwrap());
        assert_eq!(bench.read(), (200.0, vec!["A".to_owned()]));
    }
}
