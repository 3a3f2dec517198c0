"""The judged policy's rows over samples of the region and over seeds, and what they show."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ebb_lab.fitting.declaration import Free, Row
from ebb_lab.fitting.region import Array

INSIDE = "inside the range"
OUTSIDE = "outside"
NOT_IDENTIFIED = "not identified by the baseline"
#: Samples from which on a parabola says something.
ENOUGH = 6


@dataclass(frozen=True)
class Decided:
    """The parameter that a prediction hangs on: its value over the parameter's."""

    parameter: str
    unit: str
    #: Share of the prediction's variance over the region that follows the parameter's parabola.
    share: float
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Predicted:
    """A row's prediction. Ranges are from least to largest."""

    row: Row
    mean: float
    #: Of the means over seeds, over the region.
    region: tuple[float, float]
    #: Over seeds, at the central sample.
    seeds: tuple[float, float]
    #: Over both.
    range: tuple[float, float]
    #: Whether the paper's number, give or take its uncertainty, lies in `range`.
    #: None where there is no such number.
    holds_paper: bool | None
    verdict: str | None
    decided: Decided | None


def judge(row: Row, free: Sequence[Free], samples: Array, values: Array) -> Predicted:
    """The verdict on a row whose value is known at each sample, the central one first, for
    each seed; `samples` are values of the free parameters."""
    means = values.mean(axis=1)
    low, high = float(values.min()), float(values.max())
    spread = float(means.max() - means.min())
    wide = row.tolerance is not None and spread > row.tolerance
    holds, verdict = None, None
    if row.paper is not None:
        holds = low - row.uncertainty <= row.paper <= high + row.uncertainty
        # What no sample and seed reaches is outside, whatever it hangs on.
        verdict = OUTSIDE if not holds else NOT_IDENTIFIED if wide else INSIDE
    decided = _decided(free, samples, means) if wide else None
    return Predicted(
        row=row,
        mean=float(values.mean()),
        region=(float(means.min()), float(means.max())),
        seeds=(float(values[0].min()), float(values[0].max())),
        range=(low, high),
        holds_paper=holds,
        verdict=verdict,
        decided=decided,
    )


def _decided(free: Sequence[Free], samples: Array, means: Array) -> Decided:
    shares = [_explained(samples[:, index], means) for index in range(len(free))]
    index = int(np.argmax(shares))
    order = np.argsort(samples[:, index], kind="stable")
    return Decided(
        parameter=free[index].name,
        unit=free[index].unit,
        share=shares[index],
        x=tuple(samples[order, index].tolist()),
        y=tuple(means[order].tolist()),
    )


def _explained(x: Array, y: Array) -> float:
    """R² of a parabola, which also sees what rises and falls again; of a line for few samples."""
    degree = min(2 if len(x) >= ENOUGH else 1, len(np.unique(x)) - 1)
    if degree < 1:
        return 0.0
    scaled = (x - x.mean()) / x.std()
    left = y - np.polyval(np.polyfit(scaled, y, degree), scaled)
    return float(1.0 - left.var() / y.var())
