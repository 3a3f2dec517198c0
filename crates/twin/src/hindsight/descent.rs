//! A descent to a good plan: first the same setting for all of the time, then others for halves of
//! it, quarters and so on.

/// The cheapest plan found from `start`, whose cost is known: each part of the time by each of the
/// `moves`, for as long as anything costs less. `cost` runs a plan.
///
/// # Errors
/// Those of `cost`.
pub(super) fn descend<S: Copy + PartialEq, C: PartialOrd, E, const SLOTS: usize>(
    start: ([S; SLOTS], C),
    moves: &[&dyn Fn(S) -> S],
    mut cost: impl FnMut([S; SLOTS]) -> Result<C, E>,
) -> Result<[S; SLOTS], E> {
    let (mut best, mut least) = start;
    for parts in (0..).map(|level| 1 << level).take_while(|parts| *parts <= SLOTS) {
        let mut better = true;
        while std::mem::take(&mut better) {
            for (part, by) in (0..parts).flat_map(|part| moves.iter().map(move |by| (part, by))) {
                let mut plan = best;
                for setting in &mut plan[part * SLOTS / parts..(part + 1) * SLOTS / parts] {
                    *setting = by(*setting);
                }
                if plan == best {
                    continue;
                }
                let found = cost(plan)?;
                if found < least {
                    (best, least, better) = (plan, found, true);
                }
            }
        }
    }
    Ok(best)
}
