//! Which windows of a load are drawn.
//!
//! Windows belong to a class by their load: at least half of the highest, at least a quarter, and
//! so on. Within a class they are ordered by how the load changes against the window before (it
//! falls to less than half, does neither, rises to more than twice), and within that by their load.
//! Strata are equal parts of that order, and each has two windows drawn. There are as many strata
//! as the share allows, so that windows of one are as alike as can be, and at least one in a class:
//! no sample lacks the few windows of a high load among the many of a low one.

use ebb_cli::random::Random;

/// Purpose of the random numbers.
const DRAWING: u64 = 0x5a3d;
/// Windows drawn of a stratum: the least that show how they differ.
const DRAWN: usize = 2;
/// Loads of a class differ by this factor at most, and one that changes by more has jumped.
const FACTOR: f64 = 2.0;
/// Lower loads, 1 being the mean, are one class.
const LEAST: f64 = 0.25;

/// A window of a load.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// What comes in it, 1 being the mean.
    pub load: f64,
    /// Share of the load's requests that simulating it takes, lead included.
    pub cost: f64,
    /// Whether it is in any sample.
    pub certain: bool,
}

/// Windows that are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stratum {
    /// Its class.
    pub class: usize,
    /// How many windows there are.
    pub size: usize,
    /// Those drawn of them.
    pub drawn: Vec<usize>,
}

/// Draws windows that take about `share` of the load's requests, and no fewer than two of each
/// class; the same for the same seed.
pub fn draw(windows: &[Window], share: f64, seed: u64) -> Vec<Stratum> {
    let certain = |index: &usize| windows[*index].certain;
    let sure: f64 = windows.iter().filter(|window| window.certain).map(|window| window.cost).sum();
    let classes = classes(windows);
    // More strata take more requests.
    let (mut few, mut many) = (1, windows.len());
    while few < many {
        let strata = (few + many).div_ceil(2);
        let cost = |(_, stratum): &(usize, &[usize])| {
            let all: f64 = stratum.iter().map(|index| windows[*index].cost).sum();
            all * DRAWN.min(stratum.len()) as f64 / stratum.len() as f64
        };
        let cost: f64 = cut(windows, &classes, strata).iter().map(cost).sum();
        if cost + sure <= share {
            few = strata;
        } else {
            many = strata - 1;
        }
    }
    let mut random = Random::new(seed, DRAWING);
    let alone = (0..windows.len()).filter(certain);
    let alone = alone.map(|index| Stratum { class: 0, size: 1, drawn: vec![index] });
    let mut all: Vec<_> = alone.collect();
    all.extend(cut(windows, &classes, few).into_iter().map(|(class, stratum)| {
        let size = stratum.len();
        let mut left = stratum.to_vec();
        let mut take = |_| left.swap_remove(random.below(left.len() as u64) as usize);
        Stratum { class, size, drawn: (0..DRAWN.min(size)).map(&mut take).collect() }
    }));
    all
}

/// The windows that are not certain, by their class, each in the order of its strata.
fn classes(windows: &[Window]) -> Vec<Vec<usize>> {
    let highest = windows.iter().map(|window| window.load).fold(LEAST, f64::max);
    let class = |load: f64| (highest / load.max(LEAST)).log(FACTOR) as usize;
    let mut classes = vec![Vec::new(); class(0.0) + 1];
    for (index, window) in windows.iter().enumerate().filter(|(_, window)| !window.certain) {
        classes[class(window.load)].push(index);
    }
    let change = |index: usize| {
        let (load, before) = (windows[index].load, windows[index.saturating_sub(1)].load);
        i8::from(load > FACTOR * before) - i8::from(FACTOR * load < before)
    };
    for class in &mut classes {
        class.sort_by(|&a, &b| {
            let load = windows[a].load.total_cmp(&windows[b].load);
            change(a).cmp(&change(b)).then(load).then(a.cmp(&b))
        });
    }
    classes
}

/// The `classes` in about so many strata, of two windows at least. What all windows draw does not
/// depend on their load; what their requests wait for grows with it, and so does what a window
/// costs: classes have strata by the square root of one and the other.
fn cut<'a>(
    windows: &[Window],
    classes: &'a [Vec<usize>],
    strata: usize,
) -> Vec<(usize, &'a [usize])> {
    let weight = |class: &Vec<usize>| -> f64 {
        class.iter().map(|index| (1.0 + windows[*index].load).sqrt()).sum()
    };
    let all: f64 = classes.iter().map(weight).sum();
    let mut cuts = Vec::new();
    for (number, class) in classes.iter().enumerate().filter(|(_, class)| !class.is_empty()) {
        let own = (strata as f64 * weight(class) / all).round() as usize;
        let own = own.clamp(1, (class.len() / DRAWN).max(1));
        let at = |part: usize| part * class.len() / own;
        cuts.extend((0..own).map(|part| (number, &class[at(part)..at(part + 1)])));
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A day of which every twelfth hour is ten times as busy.
    fn day() -> Vec<Window> {
        let load = |index: usize| match index % 120 {
            ..10 => 10.0,
            _ => 1.0 + (index % 7) as f64 * 0.1,
        };
        let window =
            |index| Window { load: load(index), cost: load(index) / 3_000.0, certain: false };
        (0..1_440).map(window).collect()
    }

    #[test]
    fn every_window_is_in_one_stratum_and_two_are_drawn_of_each() {
        let mut windows = day();
        windows[5].certain = true;
        for share in [0.0, 0.01, 0.1, 0.5] {
            let strata = draw(&windows, share, 3);
            assert_eq!(strata.iter().map(|stratum| stratum.size).sum::<usize>(), windows.len());
            assert_eq!(strata[0], Stratum { class: 0, size: 1, drawn: vec![5] });
            assert!(strata[1..].iter().all(|stratum| stratum.drawn.len() == 2), "{strata:?}");
            let mut drawn: Vec<_> = strata.iter().flat_map(|stratum| &stratum.drawn).collect();
            let cost: f64 = drawn.iter().map(|index| windows[**index].cost).sum();
            assert!(share < 0.1 || (cost / share - 1.0).abs() < 0.1, "{cost} of {share}");
            drawn.sort_unstable();
            assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]), "drawn twice");
            assert_eq!(draw(&windows, share, 3), strata);
            assert_ne!(draw(&windows, share, 4), strata);
        }
    }

    #[test]
    fn no_class_is_left_out_whatever_the_share() {
        let windows = day();
        let strata = draw(&windows, 0.0, 1);
        let loads =
            |stratum: &Stratum| stratum.drawn.iter().map(|at| windows[*at].load as u32).max();
        assert_eq!(strata.iter().map(loads).collect::<Vec<_>>(), [Some(10), Some(1), Some(1)]);
        // Those that rise and fall come last and first.
        let strata = draw(&windows, 0.5, 1);
        let falls = strata.iter().filter(|stratum| stratum.drawn.iter().all(|at| at % 120 == 10));
        let rises = strata.iter().filter(|stratum| stratum.drawn.iter().all(|at| at % 120 == 0));
        assert!(falls.count() > 0 && rises.count() > 0, "{strata:?}");
    }

    #[test]
    fn all_is_drawn_where_all_is_asked_for() {
        let strata = draw(&day(), 1e9, 1);
        assert!(strata.iter().all(|stratum| stratum.drawn.len() >= stratum.size.min(2)));
        assert!(strata.len() > 600, "{}", strata.len());
    }
}
