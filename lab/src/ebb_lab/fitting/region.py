"""The feasible region of a baseline: points of the parameters' box where every row comes out.

SciPy's Sobol sequence covers the box evenly; what was measured so far is interpolated (thin-plate
splines), and further points are taken where the interpolation expects every row to be met, as
far as possible from all points that there are ("history matching", Vernon, Goldstein and Bower
2010). A quarter of each batch goes on with the sequence instead, for what the interpolation does
not know. An optimiser such as Optuna's ends in one point; here the whole set is wanted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from scipy.stats import qmc

Array = npt.NDArray[np.float64]

#: Points measured at once, after the first ones: enough for any number of workers, the same
#: whatever their number.
BATCH = 16
#: Places at which the interpolation is asked, of each kind: anywhere, and around the best.
CLOUD = 2048
#: Share of a range that is its end.
END = 0.03
#: Spreads around the best points, in shares of a range.
SPREADS = (0.2, 0.05, 0.01)


@dataclass(frozen=True)
class Region:
    """All points that were measured: shares of the ranges, and each row's value there."""

    shares: Array
    values: Array
    #: By how many times its uncertainty the worst row of each point misses; infinite where the
    #: point was refused, and has no values.
    misfit: Array
    #: By how much uncertainties were widened because no point meets the rows within them, and the
    #: points that were then accepted.
    widened: float = 1.0
    best: npt.NDArray[np.intp] | None = None

    @property
    def refused(self) -> int:
        """How many of the points are no possible server."""
        return int(np.isinf(self.misfit).sum())

    @property
    def accepted(self) -> npt.NDArray[np.intp]:
        """The points that meet every row, in the order in which they were found."""
        return np.flatnonzero(self.misfit <= 1.0) if self.best is None else self.best


def search(
    measure: Callable[[Array], Array],
    snap: Callable[[Array], Array],
    paper: Array,
    uncertainty: Array,
    *,
    dimensions: int,
    seed: int,
    points: int,
    accepted: int,
    widen: float = 1.0,
) -> Region:
    """Measures points until enough are accepted, or as many as allowed are measured. Where then
    none is, the `accepted` ones with the least squares are, if none of their rows misses by more
    than `widen` times its uncertainty: one row that the model lacks should not decide the others.

    `measure` gives each row's value at each point, none (NaN) where it is refused; `snap` puts a
    point where it can be, such as on whole numbers.
    """
    from scipy.stats import qmc

    sequence = qmc.Sobol(dimensions, rng=np.random.default_rng(seed))
    lot = np.random.default_rng([seed, 1])
    first = min(points, 2 ** int(np.ceil(np.log2(8 * dimensions))))
    shares = np.empty((0, dimensions))
    values = np.empty((0, len(paper)))
    batch = _fresh(snap(_sobol(sequence, first)), shares)
    while len(batch):
        shares = np.vstack([shares, batch])
        values = np.vstack([values, measure(batch)])
        off = (values - paper) / uncertainty
        misfit = np.max(np.where(np.isnan(off), np.inf, np.abs(off)), axis=1)
        if (misfit <= 1.0).sum() >= accepted or len(shares) >= points:
            break
        count = min(BATCH, points - len(shares))
        wide = snap(_sobol(sequence, -(-count // 4)))
        near = _expected(shares, off, misfit, snap, lot, count, squares=widen > 1)
        batch = _fresh(np.vstack([wide, near]), shares)[:count]
    if widen <= 1.0 or misfit.min() <= 1.0 or misfit.min() > widen:
        return Region(shares, values, misfit)
    order = np.argsort(np.where(np.isfinite(misfit), _squares(off), np.inf), kind="stable")
    best = np.sort(order[misfit[order] <= widen][:accepted])
    return Region(shares, values, misfit, float(misfit[best].max()), best)


def _squares(off: Array) -> Array:
    """Of each point, the root of the rows' mean square."""
    found: Array = np.sqrt(np.mean(np.square(off), axis=1))
    return found


def at_end(shares: Array) -> Array:
    """Of each parameter, whether all of these lie at the same end of its range: -1 or 1, else 0."""
    near = END - np.max(shares, axis=0), np.min(shares, axis=0) - (1.0 - END)
    return np.where(near[0] > 0, -1, np.where(near[1] > 0, 1, 0))


def _sobol(sequence: qmc.Sobol, count: int) -> Array:
    with warnings.catch_warnings():
        # The balance of powers of two is of no matter to points that are taken on the way.
        warnings.simplefilter("ignore", UserWarning)
        found: Array = sequence.random(count)
    return found


def _fresh(wanted: Array, known: Array) -> Array:
    """Those that are not known yet, each once, in their order."""
    seen = {tuple(row) for row in known.round(9).tolist()}
    kept = []
    for row in wanted:
        key = tuple(row.round(9).tolist())
        if key not in seen:
            seen.add(key)
            kept.append(row)
    return np.array(kept).reshape(-1, wanted.shape[1])


def _expected(
    shares: Array,
    off: Array,
    misfit: Array,
    snap: Callable[[Array], Array],
    lot: np.random.Generator,
    count: int,
    *,
    squares: bool,
) -> Array:
    """Points that are expected to meet every row, or come nearest to it, far from all others."""
    from scipy.spatial.distance import cdist

    sound = np.isfinite(misfit)
    if not sound.any():
        return np.empty((0, shares.shape[1]))
    known = np.where(sound, _squares(off), np.inf) if squares else misfit
    best = shares[np.argsort(known, kind="stable")[: min(BATCH, int(sound.sum()))]]
    around = [
        best[lot.integers(len(best), size=CLOUD // len(SPREADS))]
        + lot.normal(0.0, spread, (CLOUD // len(SPREADS), shares.shape[1]))
        for spread in SPREADS
    ]
    anywhere = lot.random((CLOUD, shares.shape[1]))
    cloud = _fresh(snap(np.clip(np.vstack([anywhere, *around]), 0.0, 1.0)), shares)
    # Where the nearest point was refused, another one would be, too.
    cloud = cloud[sound[np.argmin(cdist(cloud, shares), axis=1)]] if len(cloud) else cloud
    if not len(cloud):
        return cloud
    expected = _interpolated(shares[sound], off[sound], cloud)
    worst = np.max(np.abs(expected), axis=1)
    order = np.argsort(_squares(expected) if squares else worst, kind="stable")
    pool = max(int((worst <= 1.0).sum()), 4 * count)
    return spread_out(cloud[order[:pool]], count, shares)


def _interpolated(shares: Array, off: Array, cloud: Array) -> Array:
    """What each row is expected to be off by. What misses by far more than half of the points do,
    as latencies beyond saturation, is compressed lest it bend the surface elsewhere."""
    from scipy.interpolate import RBFInterpolator
    from scipy.spatial.distance import cdist

    scale = np.maximum(1.0, np.median(np.abs(off), axis=0))
    try:
        surface = RBFInterpolator(shares, np.arcsinh(off / scale), smoothing=1e-6)
        found: Array = np.sinh(np.clip(surface(cloud), -20.0, 20.0)) * scale
    except (np.linalg.LinAlgError, ValueError):
        # Too few points, or all in one plane: that of the nearest point.
        found = off[np.argmin(cdist(cloud, shares), axis=1)]
    return found


def spread_out(places: Array, count: int, others: Array) -> Array:
    """So many of the places, each the farthest from the others and from those chosen before."""
    from scipy.spatial.distance import cdist

    distance = np.min(cdist(places, others), axis=1)
    chosen = []
    for _ in range(min(count, len(places))):
        farthest = int(np.argmax(distance))
        chosen.append(farthest)
        distance = np.minimum(distance, cdist(places, places[[farthest]])[:, 0])
    return places[chosen]


def central(shares: Array) -> int:
    """The one with the least sum of distances to the others."""
    from scipy.spatial.distance import cdist

    return int(np.argmin(cdist(shares, shares).sum(axis=1))) if len(shares) > 1 else 0
