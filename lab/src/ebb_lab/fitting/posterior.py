"""The posterior of free parameters: how probable each place of their box is, given the baseline.

A row's deviation joins what is stated of its number (uncertainty, rounding) and what the twin adds
(standard error over the seeds, error of the emulator). The prior is even over the declared box, on
a logarithmic scale where a range is. SciPy's Sobol sequence covers the box; what was simulated is
interpolated (`emulator`), and further points are taken where the posterior has mass, far from
others, until the emulator mispredicts them by little. A quarter of each batch goes on with the
sequence, for what the emulator does not know.

Draws come from sequential Monte Carlo (Del Moral, Doucet and Jasra 2006): particles of the prior,
the likelihood raised step by step, moved by differences of particles (ter Braak 2006).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ebb_lab.fitting import emulator
from ebb_lab.fitting.emulator import Array

if TYPE_CHECKING:
    from scipy.stats import qmc

#: Points simulated at once, after the first ones: enough for any number of workers, the same
#: whatever their number.
BATCH = 16
#: Places that a batch is chosen from, for each of its points.
CHOICE = 4
#: An emulator's error of this share of a row's deviation widens it by 3 %: enough.
SMALL = 0.25
#: Particles, and moves of each at every step of the likelihood.
PARTICLES, MOVES = 1024, 20
#: Share of the particles' weight that a step of the likelihood leaves effective.
EFFECTIVE = 0.5
#: Model and rows disagree where so few sets of true rows would be as far off.
RARE = 0.05
#: Deviations may be widened so much; beyond, the misses are no noise of any row.
HOPELESS = 3.0
#: Quantiles of a 90 % range.
LOW, HIGH = 0.05, 0.95
#: A range reaches an end of the box that is nearer than this share of its own width.
REACH = 0.1


@dataclass(frozen=True)
class Posterior:
    """All points that were simulated, and particles of the posterior."""

    #: Shares of the ranges, and each row's mean over the seeds there; NaN where it was refused.
    shares: Array
    values: Array
    #: Of each row: as stated with the seeds' standard error, and what the emulator adds.
    deviation: Array
    error: Array
    #: By how much deviations were widened because model and rows disagree.
    widened: float
    #: Draws of the posterior, as shares; none where all points were refused.
    cloud: Array

    @property
    def refused(self) -> int:
        """How many of the points are no possible server."""
        return int(np.isnan(self.values).any(axis=1).sum())

    @property
    def hopeless(self) -> bool:
        """Whether no widening makes noise of what the rows miss by."""
        return self.widened > HOPELESS

    @property
    def central(self) -> Array:
        """The draw nearest to the posterior's mean, in its deviations."""
        spread = self.cloud.std(axis=0)
        off = (self.cloud - self.cloud.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        found: Array = self.cloud[int(np.argmin(np.square(off).sum(axis=1)))]
        return found

    def drawn(self, count: int, seed: int) -> Array:
        """So many draws."""
        lot = np.random.default_rng([seed, 2])
        return self.cloud[lot.choice(len(self.cloud), count, replace=False)]

    @property
    def ends(self) -> list[tuple[bool, bool]]:
        """Of each parameter, whether its range reaches the low and the high end of the box."""
        low, high = np.quantile(self.cloud, (LOW, HIGH), axis=0)
        near = REACH * (high - low)
        return list(zip((low < near).tolist(), (high > 1.0 - near).tolist(), strict=True))


def search(
    measure: Callable[[Array], Array],
    snap: Callable[[Array], Array],
    paper: Array,
    stated: Array,
    *,
    dimensions: int,
    seed: int,
    points: int,
) -> Posterior:
    """Simulates points until the emulator is good where the posterior is, or as many as allowed.

    `measure` gives each row's value at each point for each seed, none (NaN) where it is refused;
    `snap` puts a point where it can be, such as on whole numbers; `stated` are the deviations of
    the rows' numbers.
    """
    from scipy.stats import qmc

    sequence = qmc.Sobol(dimensions, rng=np.random.default_rng(seed))
    lot = np.random.default_rng([seed, 1])
    first = min(points, 2 ** int(np.ceil(np.log2(8 * dimensions))))
    shares = _fresh(snap(_sobol(sequence, first)), np.empty((0, dimensions)))
    values = measure(shares)
    error: Array | None = None
    while True:
        means, deviation = values.mean(axis=2), np.hypot(stated, _noise(values))
        sound = np.isfinite(means).all(axis=1)
        if not sound.any():
            return Posterior(shares, means, deviation, np.zeros_like(paper), 1.0, shares[:0])
        off = means[sound] - paper
        if error is None:
            error = _rms(emulator.cross_validated(shares[sound], off / deviation)) * deviation
        total = np.hypot(deviation, error)
        expected = emulator.through(shares[sound], off / total)
        misfit = _Misfit(expected, snap, shares, sound)
        cloud, widened = _posterior(misfit, dimensions, lot, len(paper))
        count = min(BATCH, points - len(shares))
        batch = _batch(snap(cloud), shares, sequence, snap, lot, count)
        if not len(batch) and count and error.any():
            # All places that are probable are simulated: there is nothing between them.
            error = np.zeros_like(error)
            continue
        if (len(shares) > first and (error <= SMALL * deviation).all()) or not len(batch):
            return Posterior(shares, means, deviation, error, widened, snap(cloud))
        told = measure(batch)
        near = told.mean(axis=2)[: count - count // 4]
        wrong = expected(batch[: len(near)]) * total + paper - near
        if np.isfinite(wrong).any():
            error = _rms(wrong[np.isfinite(wrong).all(axis=1)])
        shares, values = np.vstack([shares, batch]), np.vstack([values, told])


class _Misfit:
    """The rows' sum of squares at any places; infinite where the nearest point was refused."""

    def __init__(
        self,
        expected: Callable[[Array], Array],
        snap: Callable[[Array], Array],
        shares: Array,
        sound: npt.NDArray[np.bool_],
    ) -> None:
        self.expected, self.snap, self.shares, self.sound = expected, snap, shares, sound
        self.least = np.inf

    def __call__(self, places: Array) -> Array:
        inside = ((places >= 0.0) & (places <= 1.0)).all(axis=1)
        at = self.snap(np.clip(places, 0.0, 1.0))
        if not self.sound.all():
            inside &= self.sound[emulator.nearest(at, self.shares)]
        found: Array = np.where(inside, np.square(self.expected(at)).sum(axis=1), np.inf)
        self.least = min(self.least, float(found.min()))
        return found


def _posterior(
    misfit: _Misfit, dimensions: int, lot: np.random.Generator, rows: int
) -> tuple[Array, float]:
    """Particles, and by how much deviations were widened for them (Birge's ratio)."""
    from scipy.stats import chi2

    cloud = _particles(misfit, dimensions, lot, 1.0)
    free = rows - dimensions if rows > dimensions else rows
    if misfit.least <= chi2.ppf(1.0 - RARE, free):
        return cloud, 1.0
    widened = float(np.sqrt(misfit.least / free))
    return _particles(misfit, dimensions, lot, widened**-2), widened


def _particles(
    misfit: Callable[[Array], Array], dimensions: int, lot: np.random.Generator, last: float
) -> Array:
    """Draws of the likelihood, raised to `last`, over the even prior."""
    from scipy.stats import qmc

    cloud: Array = qmc.Sobol(dimensions, rng=lot).random(PARTICLES)
    found = misfit(cloud)
    power = 0.0
    while power < last:
        step = _step(found, last - power)
        power += step
        weight = _weight(found, step)
        ticks = (lot.random() + np.arange(PARTICLES)) / PARTICLES
        kept = np.minimum(np.searchsorted(np.cumsum(weight), ticks), PARTICLES - 1)
        cloud, found = cloud[kept], found[kept]
        for _ in range(MOVES):
            cloud, found = _moved(misfit, cloud, found, power, lot)
    return cloud


def _moved(
    misfit: Callable[[Array], Array],
    cloud: Array,
    found: Array,
    power: float,
    lot: np.random.Generator,
) -> tuple[Array, Array]:
    """One move of each particle along the difference of two others, which is accepted or not."""
    one, other = lot.integers(len(cloud), size=(2, len(cloud)))
    # The factor of the least variance for normal posteriors; 1 jumps from one mode to another.
    usual = 2.38 / np.sqrt(2 * cloud.shape[1])
    factor = np.where(lot.random(len(cloud)) < 0.1, 1.0, usual * lot.random(len(cloud)))
    wanted = cloud + factor[:, None] * (cloud[one] - cloud[other])
    wanted += lot.normal(0.0, 1e-4, cloud.shape)
    new = misfit(wanted)
    better = np.log(lot.random(len(cloud))) < 0.5 * power * (found - new)
    return np.where(better[:, None], wanted, cloud), np.where(better, new, found)


def _weight(found: Array, step: float) -> Array:
    weight: Array = np.exp(-0.5 * step * (found - found.min()))
    weight /= weight.sum()
    return weight


def _step(found: Array, most: float) -> float:
    """How far the likelihood may be raised at once."""
    least = EFFECTIVE * np.isfinite(found).sum()

    def effective(step: float) -> bool:
        return bool(1.0 / np.square(_weight(found, step)).sum() >= least)

    if effective(most):
        return most
    low, high = 0.0, most
    while high > 1.01 * low:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle) else (low, middle)
    return high


def _batch(
    cloud: Array,
    shares: Array,
    sequence: qmc.Sobol,
    snap: Callable[[Array], Array],
    lot: np.random.Generator,
    count: int,
) -> Array:
    """Points to simulate next: draws that are far from the known ones, then the sequence's."""
    if count <= 0:
        return shares[:0]
    wide = count // 4
    pool = cloud[lot.choice(len(cloud), CHOICE * count, replace=False)]
    near = spread_out(_fresh(pool, shares), count - wide, shares)
    return _fresh(np.vstack([near, snap(_sobol(sequence, wide))]), shares)


def _noise(values: Array) -> Array:
    """The standard error of each row's mean over the seeds, at the median point; none of one."""
    if values.shape[2] < 2:
        return np.zeros(values.shape[1])
    each = values.std(axis=2, ddof=1) / np.sqrt(values.shape[2])
    sound = np.isfinite(each).all(axis=1)
    found: Array = np.median(each[sound], axis=0) if sound.any() else np.zeros(values.shape[1])
    return found


def _rms(wrong: Array) -> Array:
    found: Array = np.sqrt(np.mean(np.square(wrong), axis=0))
    return found


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


def spread_out(places: Array, count: int, others: Array) -> Array:
    """So many of the places, each the farthest from the others and from those chosen before."""
    from scipy.spatial.distance import cdist

    if not len(places):
        return places
    distance = np.min(cdist(places, others), axis=1)
    chosen = []
    for _ in range(min(count, len(places))):
        farthest = int(np.argmax(distance))
        chosen.append(farthest)
        distance = np.minimum(distance, cdist(places, places[[farthest]])[:, 0])
    return places[chosen]
