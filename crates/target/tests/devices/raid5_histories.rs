//! Every short history of an array of three members, against its promise: it is refused by name,
//! or all that was acknowledged is read.
//!
//! A history is made of runs, each with an end of its own, and of what happens to members in
//! between: one is lost, replaced by a blank one, or an older copy of it comes back. All histories
//! of five steps whose runs are stopped or killed are tried, and those of four (`EBB_HISTORIES`
//! says otherwise) in which members fail and power is lost at chosen writes as well.

use std::sync::{Arc, Mutex};

use ebb_target::device::{Device, Keeper, Raid5, Raid5Options, Raid5Status};

use super::shelf::{BLOCK, Bench, Client, Pages, Plate, Rig, STOCK};

/// Blocks of the array: three stripes of two.
const BLOCKS: usize = 6;

/// What the array held when a write was acknowledged: each block is one of two values, which
/// differ only where a write was not answered.
struct Node {
    parent: Option<usize>,
    blocks: [[u8; 2]; BLOCKS],
}

/// A member's content at some moment.
#[derive(Clone)]
struct Member {
    pages: Pages,
    /// The last acknowledged write of its array while it was in use.
    node: usize,
    /// Counts copies: equal ones are the same.
    serial: usize,
    /// Taken in the middle of the run of this number.
    amid: Option<usize>,
}

#[derive(Clone)]
struct World {
    members: [Option<Member>; 3],
    copies: [Vec<Member>; 3],
    nodes: Arc<Mutex<Vec<Node>>>,
    serial: usize,
    version: u8,
    runs: usize,
    /// The run that ended last was stopped in order.
    clean: bool,
    /// Members that nothing but the array has touched, and that it never had to do without.
    untouched: [bool; 3],
    steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Words {
    None,
    Degraded,
    Rebuild,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Stop,
    /// The process is killed after so many writes: before the keeper noted anything, or after.
    Crash(usize),
    /// Power is lost at the write of this number while it is assembled.
    CutStart(u64),
    /// The same, while it is stopped.
    CutStop(u64),
    /// A member fails amid the writes, then it is stopped.
    Fail(usize),
    /// A member fails, and power is lost at a write after that.
    FailCut(usize, u64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Run(Words, End),
    Lose(usize),
    Blank(usize),
    Restore(usize, usize),
}

fn options(words: Words) -> Raid5Options {
    Raid5Options {
        chunk: BLOCK as u32,
        journal_slots: 4,
        create: false,
        degraded: words == Words::Degraded,
        rebuild: words == Words::Rebuild,
        rebuild_rate: None,
    }
}

/// What came of a run.
enum Outcome {
    Ran(Box<World>),
    Refused,
    /// The cut came too late to matter: the same as another history.
    Same,
}

impl World {
    /// An array that was made, written and stopped.
    fn new() -> Self {
        let blank = || Some(Member { pages: Pages::default(), node: 0, serial: 0, amid: None });
        let node = Node { parent: None, blocks: [[0; 2]; BLOCKS] };
        let world = Self {
            members: [blank(), blank(), blank()],
            copies: Default::default(),
            nodes: Arc::new(Mutex::new(vec![node])),
            serial: 0,
            version: 0,
            runs: 0,
            clean: true,
            untouched: [true; 3],
            steps: Vec::new(),
        };
        let made = Raid5Options { create: true, ..options(Words::None) };
        match world.run(&made, Words::None, End::Stop) {
            Outcome::Ran(world) => *world,
            _ => panic!("an array of blank members can be made"),
        }
    }

    fn given(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.members.iter().enumerate().filter_map(|(at, m)| m.as_ref().map(|m| (at, m)))
    }

    /// Whether `node` came after `other` in the same life of the array.
    fn follows(&self, mut node: usize, other: usize) -> bool {
        let nodes = self.nodes.lock().unwrap();
        while let Some(parent) = nodes[node].parent {
            if parent == other {
                return true;
            }
            node = parent;
        }
        false
    }

    /// Which acknowledged state this is, of those that may be served.
    fn recognise(&self, seen: [u8; BLOCKS]) -> Option<usize> {
        let fits = |node: usize| {
            let nodes = self.nodes.lock().unwrap();
            nodes[node].blocks.iter().zip(seen).all(|(may, seen)| may.contains(&seen))
        };
        let mut given = self.given().map(|(_, member)| member.node);
        given.find(|node| {
            fits(*node) && !self.given().any(|(_, member)| self.follows(member.node, *node))
        })
    }

    /// The one thing that is not promised: after a run that was cut short, two members that are
    /// missing or copies from the midst of it.
    fn excused(&self, status: &Raid5Status) -> bool {
        let amid = |(_, member): &(usize, &Member)| member.amid == Some(self.runs - 1);
        let without = status.failed.is_some() || status.rebuilding.is_some();
        !self.clean && self.given().filter(amid).count() + usize::from(without) > 1
    }

    /// Whether the array has no reason to refuse.
    fn fit(&self, words: Words) -> bool {
        let touched: Vec<_> = (0..3).filter(|at| !self.untouched[*at]).collect();
        match touched[..] {
            [] => true,
            [at] => match &self.members[at] {
                None => words == Words::Degraded,
                Some(member) if member.pages.heads() == [None, None] => words == Words::Rebuild,
                Some(_) => words != Words::None,
            },
            _ => false,
        }
    }

    fn node(&self, parent: usize, blocks: [[u8; 2]; BLOCKS]) -> usize {
        let mut nodes = self.nodes.lock().unwrap();
        nodes.push(Node { parent: Some(parent), blocks });
        nodes.len() - 1
    }

    /// Assembles the array of what is there; otherwise checks that there was a reason not to.
    fn assemble(
        &self,
        bench: &Bench,
        options: &Raid5Options,
        (words, end): (Words, End),
    ) -> Result<(Raid5, Keeper), Outcome> {
        let named = bench
            .plates
            .iter()
            .map(|(at, plate)| (format!("m{at}"), Arc::new(plate.clone()) as Arc<dyn Device>));
        let opened = Raid5::open_kept(named.collect(), options);
        let history = [&self.steps[..], &[Step::Run(words, end)]].concat();
        match opened {
            Ok(_) if matches!(end, End::CutStart(_)) => Err(Outcome::Same),
            Ok(opened) => Ok(opened),
            Err(_) if bench.off() => Err(Outcome::Ran(Box::new(self.ended(bench, history, false)))),
            Err(error) => {
                let error = error.to_string();
                let names = self.given().any(|(at, _)| error.contains(&format!("m{at}")));
                assert!(names || bench.plates.is_empty(), "{history:?}: {error}");
                for ((_, plate), (_, member)) in bench.plates.iter().zip(self.given()) {
                    assert_eq!(plate.heads(), member.pages.heads(), "{history:?}: {error}");
                }
                assert!(!self.fit(words), "{history:?}: {error}");
                Err(Outcome::Refused)
            }
        }
    }

    fn run(&self, options: &Raid5Options, words: Words, end: End) -> Outcome {
        let rig = Arc::<Mutex<Rig>>::default();
        let plate =
            |(at, member): (usize, &Member)| (at, Plate::new(at, member.pages.clone(), &rig));
        let bench = Bench { plates: self.given().map(plate).collect(), rig: rig.clone() };
        if let End::CutStart(writes) = end {
            bench.cut(writes);
        }
        let (array, mut keeper) = match self.assemble(&bench, options, (words, end)) {
            Ok(opened) => opened,
            Err(outcome) => return outcome,
        };
        let mut world = Self { runs: self.runs + 1, ..self.clone() };
        world.steps.push(Step::Run(words, end));
        let mut client = Client::new(&array);
        let seen: [u8; BLOCKS] = std::array::from_fn(|at| client.read(at as u64, &mut keeper));
        let Some(node) = self.recognise(seen) else {
            let excused = self.excused(&array.status());
            assert!(excused, "{:?}: old data {seen:?}", world.steps);
            return Outcome::Same;
        };
        if words == Words::None {
            let failed = array.status().failed;
            assert_eq!(failed, None, "{:?}: degraded without the word", world.steps);
        }
        world.work(&bench, (&array, &mut keeper, client), end, (node, seen));
        if matches!(end, End::FailCut(..)) && !bench.off() {
            return Outcome::Same;
        }
        if let End::CutStop(writes) = end {
            bench.cut(writes);
        }
        let stops = matches!(end, End::Stop | End::CutStop(_) | End::Fail(_));
        if stops {
            while keeper.run_once() {}
            keeper.stop();
        }
        if matches!(end, End::CutStop(_)) && !bench.off() {
            return Outcome::Same;
        }
        let status = array.status();
        for (role, untouched) in world.untouched.iter_mut().enumerate() {
            *untouched &= status.failed != Some(role) && status.rebuilding != Some(role);
        }
        let mut ended = world.ended(&bench, world.steps.clone(), stops && !bench.off());
        ended.copy(&bench, None);
        Outcome::Ran(Box::new(ended))
    }

    /// Writes, and notes what was acknowledged.
    fn work(
        &mut self,
        bench: &Bench,
        (array, keeper, mut client): (&Raid5, &mut Keeper, Client),
        end: End,
        (mut node, seen): (usize, [u8; BLOCKS]),
    ) {
        let mut blocks = seen.map(|value| [value; 2]);
        // The second and third write share rows; before the last one the keeper notes.
        for (round, at) in [5, 1, 0, 5, 0].into_iter().enumerate() {
            match end {
                End::Crash(writes) if writes == round => return,
                End::Fail(role) | End::FailCut(role, _) if round == 3 => bench.fail(role),
                End::FailCut(_, writes) if round == 4 => bench.cut(writes),
                _ => {}
            }
            self.version += 1;
            let written = client.write(at, self.version, keeper);
            let values = &mut blocks[at as usize];
            *values = [if written { self.version } else { values[0] }, self.version];
            node = self.node(node, blocks);
            self.took_part(array, node);
            if !written {
                assert!(bench.off() || array.status().dead, "{:?}: a write failed", self.steps);
                return;
            }
            if matches!(end, End::Crash(_)) && round % 2 == 0 {
                self.copy(bench, Some(self.runs - 1));
            }
        }
    }

    /// Who was in use when a write was acknowledged knows of it.
    fn took_part(&mut self, array: &Raid5, node: usize) {
        let failed = array.status().failed;
        for (role, member) in self.members.iter_mut().enumerate() {
            if let Some(member) = member.as_mut().filter(|_| failed != Some(role)) {
                member.node = node;
            }
        }
    }

    /// Keeps a copy of every member.
    fn copy(&mut self, bench: &Bench, amid: Option<usize>) {
        for (at, plate) in &bench.plates {
            self.serial += 1;
            let Some(member) = &mut self.members[*at] else { continue };
            let copy = Member { pages: plate.pages(), serial: self.serial, amid, ..member.clone() };
            if amid.is_none() {
                *member = copy.clone();
            }
            self.copies[*at].push(copy);
        }
    }

    fn ended(&self, bench: &Bench, steps: Vec<Step>, clean: bool) -> Self {
        let mut world = Self { steps, clean, ..self.clone() };
        for (at, plate) in &bench.plates {
            if let Some(member) = &mut world.members[*at] {
                member.pages = plate.pages();
            }
        }
        world
    }

    /// What can happen to members next: in the order of the members, as order does not matter.
    fn mishaps(&self) -> Vec<Step> {
        let first = match self.steps.last() {
            Some(Step::Lose(at) | Step::Blank(at) | Step::Restore(at, _)) => at + 1,
            _ => 0,
        };
        let mut steps = Vec::new();
        for at in first..3 {
            if self.members[at].is_some() {
                steps.push(Step::Lose(at));
            }
            steps.push(Step::Blank(at));
            let here = self.members[at].as_ref().map(|member| member.serial);
            for (number, copy) in self.copies[at].iter().enumerate() {
                if here != Some(copy.serial) {
                    steps.push(Step::Restore(at, number));
                }
            }
        }
        steps
    }

    fn suffer(&self, step: Step) -> Self {
        let mut world = self.clone();
        let (at, member) = match step {
            Step::Lose(at) => (at, None),
            Step::Restore(at, number) => (at, Some(self.copies[at][number].clone())),
            Step::Blank(at) => {
                (at, Some(Member { pages: Pages::default(), node: 0, serial: STOCK, amid: None }))
            }
            Step::Run(..) => return world,
        };
        world.members[at] = member;
        world.untouched[at] = false;
        world.steps.push(step);
        world
    }
}

struct Count {
    ran: u64,
    refused: u64,
}

const PLAIN: [End; 3] = [End::Stop, End::Crash(4), End::Crash(5)];

fn rare() -> impl Iterator<Item = End> {
    let starts = [2, 4, 6, 8].into_iter().map(End::CutStart);
    let stops = [2, 5].into_iter().map(End::CutStop);
    let fails = (0..3).map(End::Fail);
    starts.chain(stops).chain(fails).chain([3, 5].into_iter().map(|at| End::FailCut(1, at)))
}

/// All histories that go on from `world` by `left` steps, `odd` of them rare at most.
fn explore(world: &World, left: usize, odd: usize, count: &mut Count) {
    let plain = PLAIN.into_iter().map(|end| (end, odd));
    let rare = rare().filter(|_| odd > 0).map(|end| (end, odd.saturating_sub(1)));
    // What is written by the last run is not looked at, so how it ends does not matter.
    let ends: Vec<_> = plain.chain(rare).take(if left > 1 { usize::MAX } else { 1 }).collect();
    let mut words = vec![Words::None];
    let mut at = 0;
    while at < words.len() {
        for (end, odd) in &ends {
            match world.run(&options(words[at]), words[at], *end) {
                Outcome::Ran(next) => {
                    count.ran += 1;
                    if left > 1 {
                        explore(&next, left - 1, *odd, count);
                    }
                }
                Outcome::Refused => {
                    count.refused += 1;
                    if words.len() == 1 {
                        words.extend([Words::Degraded, Words::Rebuild]);
                    }
                    break;
                }
                Outcome::Same => {}
            }
        }
        at += 1;
    }
    if left > 1 {
        for step in world.mishaps() {
            explore(&world.suffer(step), left - 1, odd, count);
        }
    }
}

#[test]
fn every_short_history_is_refused_or_read_in_full() {
    let most = std::env::var("EBB_HISTORIES").map_or(4, |steps| steps.parse().unwrap());
    for (steps, odd) in [(5, 0), (4, most)] {
        let mut count = Count { ran: 0, refused: 0 };
        explore(&World::new(), steps, odd, &mut count);
        println!("{steps} steps: {} runs, {} refusals", count.ran, count.refused);
        assert!(count.ran > 1000 && count.refused > 1000);
    }
}

/// An array that went on in two ways, each without a member of the other.
#[test]
fn halves_that_went_on_apart_are_not_put_together() {
    let steps = [
        Step::Lose(0),
        Step::Run(Words::Degraded, End::Stop),
        Step::Restore(0, 0),
        Step::Lose(1),
        Step::Restore(2, 0),
        // Its superblocks are not more numerous than those of the other half.
        Step::Run(Words::Degraded, End::CutStop(3)),
        Step::Restore(1, 1),
    ];
    let mut world = World::new();
    for step in steps {
        world = match step {
            Step::Run(words, end) => match world.run(&options(words), words, end) {
                Outcome::Ran(next) => *next,
                _ => panic!("{step:?} does not go on"),
            },
            _ => world.suffer(step),
        };
    }
    for words in [Words::None, Words::Degraded, Words::Rebuild] {
        assert!(matches!(world.run(&options(words), words, End::Stop), Outcome::Refused));
    }
}
