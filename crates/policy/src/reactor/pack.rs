//! What Sandman and its improvement share: packing threads onto few cores, by load and sibling.

use std::ops::Range;

use super::book::Book;
use super::{Core, Machine, Placement, Reason, Thread, Wait};

/// Share of a core that may be filled, burst buffer included: SPDK's own core limit.
pub const CORE_LIMIT: f64 = 0.80;
/// How much longer work takes beside a busy sibling: two hyper-threads together do about 1.25
/// times the work of one.
pub const SIBLING_COST: f64 = 1.6;

/// The other hyper-thread of `core`.
pub(super) fn sibling(placement: &Placement, core: Core) -> Option<Core> {
    placement.machine().cores[usize::from(core)].sibling
}

/// Moves a thread; a core that sleeps is made to poll before, or it would not see the I/O.
pub(super) fn send(placement: &mut Placement, thread: Thread, to: Core, reason: Reason) {
    if placement.waits()[usize::from(to)] != Wait::Poll {
        placement.set_wait(to, Wait::Poll, reason);
    }
    placement.move_thread(thread, to, reason);
}

/// A core of `workers` without threads: siblings of awake cores first, so that whole physical
/// cores sleep on.
pub(super) fn free(book: &Book, placement: &Placement, workers: Range<Core>) -> Option<Core> {
    let free = |core: &Core| !book.used(*core);
    let awake =
        |core: &Core| sibling(placement, *core).is_some_and(|b| b == Machine::MAIN || book.used(b));
    workers.clone().filter(free).find(awake).or_else(|| workers.clone().find(free))
}

/// Cores above the limit give threads, the busiest first, to a free core or to one that fits.
pub(super) fn relieve(
    book: &mut Book,
    placement: &mut Placement,
    workers: Range<Core>,
    fill: f64,
    reason: Reason,
) {
    for core in workers.clone() {
        while book.core[usize::from(core)] > CORE_LIMIT && book.count[usize::from(core)] > 1 {
            let load = |thread: Thread| book.thread[usize::from(thread)];
            let on = placement.threads_on(core);
            let Some(thread) = on.max_by(|a, b| load(*a).total_cmp(&load(*b))) else { break };
            let load = load(thread);
            let fits = |to: &Core| *to != core && book.fits(*to, load, fill);
            let to = free(book, placement, workers.clone());
            let Some(to) = to.or_else(|| workers.clone().find(fits)) else { break };
            send(placement, thread, to, reason);
            book.shift(thread, core, to);
        }
    }
}

/// The fullest core of `targets` in use that fits `load` more; the lowest of equals.
pub(super) fn fullest(
    book: &Book,
    mut targets: impl Iterator<Item = Core>,
    load: f64,
    fill: f64,
) -> Option<Core> {
    let mut best: Option<Core> = None;
    for to in &mut targets {
        let full = |core: Core| book.core[usize::from(core)];
        if book.used(to) && book.fits(to, load, fill) && best.is_none_or(|b| full(to) > full(b)) {
            best = Some(to);
        }
    }
    best
}

/// Whether `core` with `load` more keeps to the limit beside a sibling that works, too.
fn room(book: &Book, core: Core, load: f64) -> bool {
    book.fits(core, load, CORE_LIMIT / SIBLING_COST)
}

/// Whether `to` can take `load` from `from`, which is to be emptied: where it shares its physical
/// core, both hyper-threads must have room at the speed that sharing leaves them.
pub(super) fn shares(book: &Book, placement: &Placement, from: Core, to: Core, load: f64) -> bool {
    let beside = sibling(placement, to).filter(|b| *b != from && book.used(*b));
    beside.is_none_or(|beside| room(book, beside, 0.0) && room(book, to, load))
}

/// Empties cores of `donors`, the least loaded first (of equals the last), as long as all threads
/// of one find another core as `pick` says.
pub(super) fn consolidate(
    book: &mut Book,
    placement: &mut Placement,
    donors: Range<Core>,
    pick: impl Fn(&Book, &Placement, Core, f64) -> Option<Core>,
    reason: Reason,
) {
    let mut last: Option<(f64, Core)> = None;
    // Each round empties a core or rules one out.
    for _ in donors.clone() {
        let load = |core: Core| book.core[usize::from(core)];
        let order = |a: (f64, Core), b: (f64, Core)| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1));
        let used = donors.clone().filter(|core| book.used(*core)).map(|core| (load(core), core));
        let later = used.filter(|next| last.is_none_or(|last| order(last, *next).is_lt()));
        let Some(next) = later.min_by(|a, b| order(*a, *b)) else { break };
        last = Some(next);
        let from = next.1;
        if book.plan(from, placement, |book, load| pick(book, placement, from, load)) {
            book.commit(placement, reason);
        }
    }
}

/// Moves active workers that alone keep a physical core awake beside others that do, so that
/// siblings sleep together (slides, "Schedule sibling cores to sleep together").
pub(super) fn pair_siblings(
    book: &mut Book,
    placement: &mut Placement,
    workers: Range<Core>,
    reason: Reason,
) {
    let awake = |book: &Book, core: Core| core == Machine::MAIN || book.used(core);
    let room = |book: &Book, core: Core| room(book, core, 0.0);
    for from in workers.clone() {
        let rests = |beside: Core| !awake(book, beside);
        if !book.used(from) || !sibling(placement, from).is_some_and(rests) || !room(book, from) {
            continue;
        }
        let beside = |to: &Core| {
            let other = sibling(placement, *to).filter(|other| *other != from);
            !book.used(*to) && other.is_some_and(|o| awake(book, o) && room(book, o))
        };
        let Some(to) = workers.clone().find(beside) else { continue };
        if book.plan(from, placement, |_, _| Some(to)) {
            if placement.waits()[usize::from(to)] != Wait::Poll {
                placement.set_wait(to, Wait::Poll, reason);
            }
            book.commit(placement, reason);
        }
    }
}
