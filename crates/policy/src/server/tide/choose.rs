//! Which setting of the cores serves most of those that fit.

use super::cpu::Point;
use super::{ENOUGH, GROWTH, LARGE, SHARED, SPARE, STOPS, Tide, USED_UP, WORTH};

/// Bytes that drives move for each byte that is asked for, at least and at most.
const LEAST_MOVED: f64 = 0.1;
const MOST_MOVED: f64 = 10.0;

/// What a point leaves of what is allowed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Left {
    /// Watts for traffic, and bytes a second for best effort.
    pub(super) room: f64,
    pub(super) rest: f64,
    /// Whether the peak of users needs no more.
    pub(super) is_enough: bool,
}

impl Tide {
    /// Joules of a byte that is asked for, in the mean of what the drives moved at their most.
    pub(super) fn joules(&self) -> f64 {
        let sum = |way: usize| self.peak.drives.iter().map(|drive| drive[way]).sum::<f64>();
        let (read, written) = (sum(0), sum(1));
        let bytes = read / self.model.read + written / self.model.write;
        let of_drives = if bytes > 0.0 { (read + written) / bytes } else { self.model.write };
        let moves = self.moved_bytes / self.asked.max(1.0);
        of_drives * if self.asked > 0.0 { moves.clamp(LEAST_MOVED, MOST_MOVED) } else { 1.0 }
    }

    /// Bytes a second that as many clients as ever could have moved at a point, each of whom waits
    /// for an answer before the next request, if nothing held them back.
    fn asked(&self, point: &Point) -> f64 {
        let Some(elsewhere) = self.elsewhere.filter(|_| self.rest.is_none()) else {
            return f64::INFINITY;
        };
        let load = self.peak.load(self.load.size);
        let takes = elsewhere + self.cpu.alone(point, load).0;
        point.time * self.peak.clients * load.size / takes
    }

    /// Watts of that with all cores.
    pub(super) fn most_asked(&self) -> f64 {
        self.cpu.points.last().map_or(f64::INFINITY, |all| self.asked(all) * self.joules())
    }

    /// Bytes a second that users need in all, and beside best effort, which leaves them what it
    /// moves at once: all that there is where they are held back, else their peak; and what it may
    /// grow to by the next turn, the most first.
    fn needs(&self, joules: f64) -> ((f64, f64), [(f64, f64); 3]) {
        let all = self.traffic.iter().flatten().sum::<f64>() / joules;
        let rest = self.rest.map_or(0.0, |rest| rest.load.bytes).min(all);
        let (peak, users) = (self.peak.watts / joules, all - rest);
        // More than all cores can serve is not needed.
        let size = self.peak.load(self.load.size).size;
        let most = self.cpu.points.last().map_or(0.0, |all| self.cpu.serves(all, size));
        let spare = (SPARE * self.allowed / joules - rest).min(most);
        let of = |factor: f64| (factor * peak, factor * users);
        let (grown, with) = of(GROWTH);
        // Best effort gives way before users are held back.
        let is_held = self.limited && rest <= SPARE * all;
        let least = if is_held { (f64::INFINITY, f64::INFINITY) } else { of(1.0) };
        (least, [(grown.max(spare), with), (grown, with), of(ENOUGH)])
    }

    /// Bytes a second of best effort that a point leaves room for beside `users`.
    fn leaves(&self, point: &Point, users: f64, joules: f64) -> f64 {
        let Some(rest) = self.rest else { return 0.0 };
        let users = if self.binds() { users } else { self.drawn(point) / joules };
        let watts = (self.room(point, joules) / joules - users).max(0.0);
        let wanted = (GROWTH * rest.load.bytes).max(SPARE * self.allowed / joules);
        let most = wanted.min(rest.ceiling);
        watts.min(self.cpu.leaves(point, self.load, rest.load.size)).min(most)
    }

    /// The point to take, and what it leaves; the least with nothing where none fits.
    pub(super) fn choose(&self) -> (usize, Left) {
        let joules = self.joules();
        let (least, more) = self.needs(joules);
        let (needed, mut users) = least;
        let Some((mut at, mut served)) = self.best(needed, users, joules, true) else {
            return (0, Left::default());
        };
        // Room to grow, where it costs little time.
        let load = self.peak.load(self.load.size);
        let takes = |at: usize| {
            self.elsewhere.unwrap_or_default() + self.cpu.latency(&self.cpu.points[at], load)
        };
        let longest = takes(at) * (1.0 + WORTH);
        for (needed, with) in more {
            if least.0 == f64::INFINITY {
                break;
            }
            let grown = self.best(needed, with, joules, false);
            if let Some(found) =
                grown.filter(|(at, served)| *served >= needed && takes(*at) <= longest)
            {
                (at, served) = found;
                users = with;
                break;
            }
        }
        let point = &self.cpu.points[at];
        let rest = self.leaves(point, users, joules);
        let is_enough = self.rest.is_none() && !self.limited && served * joules >= self.peak.watts;
        (at, Left { room: self.room(point, joules), rest, is_enough })
    }

    /// Of the points that fit the one that serves most bytes a second up to `needed`, each for so
    /// many `joules`, and what it serves; of those that serve as much the one with the shortest
    /// latency, or all cores, which need no limit.
    fn best(&self, needed: f64, users: f64, joules: f64, by_clients: bool) -> Option<(usize, f64)> {
        let (points, load) = (&self.cpu.points, self.peak.load(self.load.size));
        let value = |point: &Point| {
            let room = self.room(point, joules);
            let moves = if self.binds() { room / joules } else { f64::INFINITY };
            let moves = if by_clients { moves.min(self.asked(point)) } else { moves };
            let served = self.cpu.serves(point, load.size).min(moves).min(needed);
            let counts = if point.time < 1.0 { 1.0 - STOPS } else { 1.0 };
            (room >= self.drawn(point)).then_some(served * counts)
        };
        let latency = |point: &Point| self.cpu.latency(point, load);
        let leaves = |point: &Point| self.leaves(point, users, joules);
        let is_quicker = |a: &Point, b: &Point| match (latency(a), latency(b)) {
            (a, b) if a.min(b) < f64::INFINITY => a < b,
            _ => self.cpu.serves(a, load.size) > self.cpu.serves(b, load.size),
        };
        let of = |may: &dyn Fn(&Point) -> bool| {
            let mut best: Option<(usize, f64)> = None;
            for (at, point) in points.iter().enumerate() {
                let Some(served) = value(point).filter(|_| may(point)) else { continue };
                let is_better = |(best, most): (usize, f64)| {
                    served > most || served == most && is_quicker(point, &points[best])
                };
                if best.is_none_or(is_better) {
                    best = Some((at, served));
                }
            }
            best
        };
        // Stops are for what is there now and meets limits, not for what may come again.
        let runs = |point: &Point| point.time == 1.0;
        let now = self.traffic.iter().flatten().sum::<f64>() / joules;
        let is_full = |served: f64| self.limited || now > USED_UP * served;
        let is_short = || of(&runs).is_none_or(|(_, served)| is_full(served));
        let stops = !self.tail && load.size >= LARGE && is_short();
        let may = |point: &Point| stops || runs(point);
        let all = points.len() - 1;
        let is_enough = value(&points[all]).is_some_and(|served| served >= needed);
        let (mut at, most) = match is_enough {
            true => (all, needed),
            false => of(&may).or_else(|| of(&|_| true))?,
        };
        // Best effort may cost users a little time.
        let longest = latency(&points[at]) + SHARED * self.mean;
        let near = 1.0 - WORTH;
        let serves =
            |point: &Point| value(point).filter(|_| may(point) && latency(point) <= longest);
        if self.rest.is_some() {
            let mut left = leaves(&points[at]);
            for (other, point) in points.iter().enumerate() {
                let own = leaves(point);
                if own * near > left && serves(point).is_some_and(|served| served >= most) {
                    (at, left) = (other, own);
                }
            }
        }
        // Another one must be worth the move.
        let present = &points[self.point];
        let stays = match serves(present) {
            Some(served) if served < most * near => false,
            Some(_) if leaves(present) < leaves(&points[at]) * near => false,
            Some(_) => most < needed || latency(present) * near <= latency(&points[at]),
            None => false,
        };
        Some((if stays { self.point } else { at }, most))
    }
}
