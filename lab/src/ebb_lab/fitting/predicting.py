"""The judged policy's rows over draws of the posterior, and what they show."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ebb_lab.fitting.declaration import Free, Row
from ebb_lab.fitting.emulator import Array
from ebb_lab.fitting.verdicts import NOT_IDENTIFIED, meets, verdict

#: Draws from which on a parabola says something.
ENOUGH = 6


@dataclass(frozen=True)
class Decided:
    """The parameter that a prediction hangs on: its value over the parameter's."""

    parameter: str
    unit: str
    #: Share of the prediction's variance over the draws that follows the parameter's parabola.
    share: float
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Predicted:
    """A row's prediction. Ranges are from least to largest."""

    row: Row
    mean: float
    #: Over the draws, each with a seed of its own: one of 19 holds a further one with 90 %.
    range: tuple[float, float]
    #: Over seeds, at the central draw.
    seeds: tuple[float, float]
    #: None where there is no stated number.
    verdict: str | None
    decided: Decided | None


@dataclass(frozen=True)
class Joint:
    """How many of the stated rows single draws meet, each within its seeds' range."""

    rows: int
    draws: int
    #: Draws that meet all, the rows that the best one meets, and those that it misses.
    all: int
    best: int
    missed: tuple[str, ...]


def judge(
    row: Row, free: Sequence[Free], samples: Array, values: Array, central: Array
) -> Predicted:
    """The verdict on a row whose value is known at each draw, and for each seed at the central
    one; `samples` are values of the free parameters at the draws."""
    low, high = float(values.min()), float(values.max())
    found = None
    if row.paper is not None:
        found = verdict(row.paper, row.half, low, high, row.bound)
    return Predicted(
        row=row,
        mean=float(values.mean()),
        range=(low, high),
        seeds=(float(central.min()), float(central.max())),
        verdict=found,
        decided=_decided(free, samples, values) if found == NOT_IDENTIFIED else None,
    )


def judge_jointly(rows: Sequence[Row], values: Array, central: Array) -> Joint | None:
    """The same of all rows that have a stated number: `values` by draw and row, `central` by row
    and seed. None where no row has one."""
    stated = [index for index, row in enumerate(rows) if row.paper is not None]
    if not stated:
        return None
    below = central.min(axis=1) - central.mean(axis=1)
    above = central.max(axis=1) - central.mean(axis=1)
    met = np.array(
        [[_met(rows[at], draw[at], below[at], above[at]) for at in stated] for draw in values]
    )
    best = met[int(np.argmax(met.sum(axis=1)))]
    return Joint(
        rows=len(stated),
        draws=len(values),
        all=int(met.all(axis=1).sum()),
        best=int(best.sum()),
        missed=tuple(rows[at].name for at, kept in zip(stated, best, strict=True) if not kept),
    )


def _met(row: Row, value: float, below: float, above: float) -> bool:
    return meets(row.paper or 0.0, row.half, value + below, value + above, row.bound)


def _decided(free: Sequence[Free], samples: Array, values: Array) -> Decided | None:
    if not free:
        return None
    shares = [_explained(samples[:, index], values) for index in range(len(free))]
    index = int(np.argmax(shares))
    order = np.argsort(samples[:, index], kind="stable")
    return Decided(
        parameter=free[index].name,
        unit=free[index].unit,
        share=shares[index],
        x=tuple(samples[order, index].tolist()),
        y=tuple(values[order].tolist()),
    )


def _explained(x: Array, y: Array) -> float:
    """R² of a parabola, which also sees what rises and falls again; of a line for few draws."""
    degree = min(2 if len(x) >= ENOUGH else 1, len(np.unique(x)) - 1)
    if degree < 1:
        return 0.0
    scaled = (x - x.mean()) / x.std()
    left = y - np.polyval(np.polyfit(scaled, y, degree), scaled)
    return float(1.0 - left.var() / y.var())
