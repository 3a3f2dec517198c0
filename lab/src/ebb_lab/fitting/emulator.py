"""Rows between simulated points: thin-plate splines over the parameters' box (SciPy)."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

#: Parts of the points, each predicted by the others.
FOLDS = 8


def through(shares: Array, off: Array) -> Callable[[Array], Array]:
    """What each row is off by at any place, from what it is off by at simulated points.

    What misses by far more than half of the points do, as latencies beyond saturation, is
    compressed lest it bend the surface elsewhere."""
    from scipy.interpolate import RBFInterpolator

    scale = np.maximum(1.0, np.median(np.abs(off), axis=0))
    try:
        surface = RBFInterpolator(shares, np.arcsinh(off / scale), smoothing=1e-6)
    except (np.linalg.LinAlgError, ValueError):
        # Too few points, or all in one plane.
        return lambda places: off[nearest(places, shares)]

    def found(places: Array) -> Array:
        values: Array = np.sinh(np.clip(surface(places), -20.0, 20.0)) * scale
        return values

    return found


def nearest(places: Array, shares: Array) -> npt.NDArray[np.intp]:
    """Of each place, the simulated point that is nearest."""
    from scipy.spatial.distance import cdist

    found: npt.NDArray[np.intp] = np.argmin(cdist(places, shares), axis=1)
    return found


def cross_validated(shares: Array, off: Array) -> Array:
    """By how much each point is mispredicted by the others."""
    part = np.arange(len(shares)) % FOLDS
    wrong = np.zeros_like(off)
    for fold in range(min(FOLDS, len(shares))):
        out = part == fold
        if not out.all():
            wrong[out] = through(shares[~out], off[~out])(shares[out]) - off[out]
    return wrong
