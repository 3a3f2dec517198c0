//! Which setting of the cores serves most of those that fit.

use super::cpu::{CPU_PERIOD, Point};
use super::{ENOUGH, GROWTH, HELD, LARGE, SHARED, SPARE, STOPS, Tide, USED_UP, WORTH};

/// Bytes that drives move for each byte that is asked for, at least and at most.
const LEAST_MOVED: f64 = 0.1;
const MOST_MOVED: f64 = 10.0;

/// What a point leaves of what is allowed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Left {
    /// Watts for traffic, bytes a second that users may move of them, and those for best effort.
    pub(super) room: f64,
    pub(super) bytes: f64,
    pub(super) rest: f64,
    /// Whether the peak of users needs no more.
    pub(super) is_enough: bool,
}

/// What a point offers in this turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    /// Watts that it leaves for traffic, and those of the traffic that there may be.
    room: f64,
    drawn: f64,
    /// Bytes a second that its cores can serve, that the watts can move, and that clients ask for.
    serves: f64,
    moves: f64,
    asked: f64,
    /// Bytes a second of best effort for which its cores have time.
    rest: f64,
    /// Of users; of points that fit alone.
    latency: f64,
    /// Whether its cores run all the time, and what a byte counts that is served otherwise.
    runs: bool,
    counts: f64,
}

impl Offer {
    const fn fits(&self) -> bool {
        self.room >= self.drawn
    }

    /// Bytes a second that it serves of those that are needed, where it fits.
    fn value(&self, needed: f64, by_clients: bool) -> Option<f64> {
        let moves = if by_clients { self.moves.min(self.asked) } else { self.moves };
        let served = self.serves.min(moves).min(needed);
        self.fits().then_some(served * self.counts)
    }

    fn is_quicker(&self, other: &Self) -> bool {
        match (self.latency, other.latency) {
            (a, b) if a.min(b) < f64::INFINITY => a < b,
            _ => self.serves > other.serves,
        }
    }
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
        // What uses up its limits is held back by them; clients ask for no more than they can.
        let asked = self.offers.last().map_or(f64::INFINITY, |all| all.asked);
        let kept = (peak / HELD).min(asked.max(peak));
        let least = if is_held { (f64::INFINITY, f64::INFINITY) } else { (kept, users) };
        (least, [(grown.max(spare), with), (grown, with), of(ENOUGH)])
    }

    /// What each point offers, where a byte costs so many `joules`, in place of `offers`.
    fn offer(&self, mut offers: Vec<Offer>, joules: f64) -> Vec<Offer> {
        let (load, drawn) = (self.peak.load(self.load.size), self.drawn());
        let rest = self.rest.map(|rest| {
            let wanted = (GROWTH * rest.load.bytes).max(SPARE * self.allowed / joules);
            (rest.load.size, wanted.min(rest.ceiling))
        });
        let late = self.is_late();
        offers.clear();
        offers.extend(self.cpu.points.iter().map(|point| {
            let (room, drawn) = (self.room(point, joules), drawn(point));
            let rest =
                rest.map_or(0.0, |(size, most)| self.cpu.leaves(point, self.load, size).min(most));
            let fits = room >= drawn;
            Offer {
                room,
                drawn,
                serves: self.cpu.serves(point, load.size),
                moves: if self.binds() { room / joules } else { f64::INFINITY },
                asked: self.asked(point),
                rest,
                latency: if fits { self.cpu.latency(point, load) } else { f64::INFINITY },
                runs: point.time == 1.0,
                counts: if point.time == 1.0 || late { 1.0 } else { 1.0 - STOPS },
            }
        }));
        offers
    }

    /// Whether requests wait for longer than any stop.
    fn is_late(&self) -> bool {
        self.mean > CPU_PERIOD.seconds()
    }

    /// Bytes a second of best effort that a point leaves room for beside `users`.
    fn leaves(&self, at: usize, users: f64, joules: f64) -> f64 {
        let offer = &self.offers[at];
        let users = if self.binds() { users } else { offer.drawn / joules };
        (offer.room / joules - users).max(0.0).min(offer.rest)
    }

    /// The point to take, and what it leaves; the least with nothing where none fits.
    pub(super) fn choose(&mut self) -> (usize, Left) {
        let joules = self.joules();
        let offers = std::mem::take(&mut self.offers);
        self.offers = self.offer(offers, joules);
        let (least, more) = self.needs(joules);
        let (needed, mut users) = least;
        let Some((mut at, mut served)) = self.best(needed, users, joules, true) else {
            return (0, Left::default());
        };
        // Room to grow, where it costs little time.
        let takes = |at: usize| self.elsewhere.unwrap_or_default() + self.offers[at].latency;
        let longest = takes(at) * (1.0 + WORTH);
        // All cores where they fit: a budget that does not bind changes nothing.
        let is_all = at + 1 == self.offers.len() && served >= needed;
        for (needed, with) in more {
            if is_all || least.0 == f64::INFINITY {
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
        let rest = self.leaves(at, users, joules);
        let is_enough = self.may_lift() && served >= self.peak.watts / joules;
        let Offer { room, moves, .. } = self.offers[at];
        (at, Left { room, bytes: moves.min(needed), rest, is_enough })
    }

    /// Of the points that fit the one that serves most bytes a second up to `needed`, each for so
    /// many `joules`, and what it serves; of those that serve as much the one with the shortest
    /// latency, or all cores, which need no limit.
    fn best(&self, needed: f64, users: f64, joules: f64, by_clients: bool) -> Option<(usize, f64)> {
        let offers = &self.offers;
        let value = |offer: &Offer| offer.value(needed, by_clients);
        let leaves = |at: usize| self.leaves(at, users, joules);
        let of = |may: &dyn Fn(&Offer) -> bool| {
            let mut best: Option<(usize, f64)> = None;
            for (at, offer) in offers.iter().enumerate().filter(|(_, offer)| may(offer)) {
                let Some(served) = value(offer) else { continue };
                let is_better = |(best, most): (usize, f64)| {
                    served > most || served == most && offer.is_quicker(&offers[best])
                };
                if best.is_none_or(is_better) {
                    best = Some((at, served));
                }
            }
            best
        };
        // Stops are for what is there now and meets limits, not for what may come again.
        let now = self.traffic.iter().flatten().sum::<f64>() / joules;
        let runs = of(&|offer| offer.runs);
        let served = runs.map_or(0.0, |(_, served)| served);
        let is_large = self.peak.load(self.load.size).size >= LARGE;
        let is_short = is_large && (self.limited || now > USED_UP * served);
        // Those that wait longer than a stop anyway are served by it, and fall behind without.
        let falls = self.is_late() || !offers[self.point].runs && now > served;
        let stops = !self.tail && (is_short || falls);
        let may = |offer: &Offer| stops || offer.runs;
        let all = offers.len() - 1;
        let is_enough = value(&offers[all]).is_some_and(|served| served >= needed);
        let (mut at, most) = match runs {
            _ if is_enough => (all, needed),
            Some(found) if !stops => found,
            _ => of(&|_| true)?,
        };
        // Best effort may cost users a little time.
        let longest = offers[at].latency + SHARED * self.mean;
        let near = 1.0 - WORTH;
        let serves =
            |offer: &Offer| value(offer).filter(|_| may(offer) && offer.latency <= longest);
        if self.rest.is_some() {
            let mut left = leaves(at);
            for (other, offer) in offers.iter().enumerate() {
                let own = leaves(other);
                if own * near > left && serves(offer).is_some_and(|served| served >= most) {
                    (at, left) = (other, own);
                }
            }
        }
        // Another one must be worth the move.
        let present = &offers[self.point];
        let stays = match serves(present) {
            Some(_) if is_enough && at == all => false,
            Some(served) if served < most * near => false,
            Some(_) if leaves(self.point) < leaves(at) * near => false,
            Some(_) => most < needed || present.latency * near <= offers[at].latency,
            None => false,
        };
        Some((if stays { self.point } else { at }, most))
    }
}
