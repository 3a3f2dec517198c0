"""Where the baseline cannot be met: the point that comes nearest, row by row. It is no result, and
its files say so in their names."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ebb_lab import text
from ebb_lab.binary import Binary
from ebb_lab.errors import WorkError
from ebb_lab.fitting.declaration import Declaration
from ebb_lab.fitting.emulator import Array
from ebb_lab.fitting.posterior import HOPELESS, Posterior

TABLE = "not-accepted.csv"
#: A row that is off by more of its deviations misses: one in twenty does by chance.
FAR = 2.0


@dataclass(frozen=True)
class Nearest:
    """The point with the least sum of squares, in the rows' deviations."""

    declared: Declaration
    ebb: Binary
    points: int
    refused: int
    refusal: str | None
    #: Values of the free parameters.
    point: list[float]
    #: Which of their ranges end where the rows come nearest, as in a posterior.
    ends: list[tuple[bool, bool]]
    #: Each row's value in the twin, and by how many of its deviations it is too high.
    values: Array
    off: Array


class UnmetError(WorkError):
    """The baseline cannot be met."""

    def __init__(self, where: str, what: str, remedy: str, found: Nearest) -> None:
        super().__init__(where, what, remedy)
        self.nearest = found


def unmet(
    declared: Declaration,
    ebb: Binary,
    found: Posterior,
    points: Array,
    refusal: str | None,
    folder: Path,
) -> UnmetError:
    """Which row cannot be met, how near it came, and the nearest point."""
    rows = declared.baseline
    sound = np.isfinite(found.values).all(axis=1)
    measured, points = found.values[sound], points[sound]
    paper = np.array([row.paper for row in rows], dtype=np.float64)
    deviation = found.deviation
    signed = (measured - paper) / deviation
    off = np.abs(signed)
    # Values to both sides of a number: one between them is met by itself, if no point shows it.
    below = (measured.min(axis=0) - paper) / deviation
    above = (paper - measured.max(axis=0)) / deviation
    out_of_reach = np.maximum(below, above)
    near = int(np.argmin(np.square(off).sum(axis=1)))
    worst = int(np.argmax(out_of_reach))
    alone = bool(out_of_reach[worst] > HOPELESS)
    best = int(np.argmin(off[:, worst])) if alone else near
    worst = worst if alone else int(np.argmax(off[best]))
    row = rows[worst]
    unit = f" {row.unit}" if row.unit else ""
    at = told(declared, points[best].tolist())
    what = "cannot be met" if alone else "can be met alone, but not with the other rows"
    most = ""
    if not alone:
        missed = int((off[best] > FAR).sum())
        names = ", ".join(f"'{rows[at]}'" for at in np.argsort(-off[best])[1 : min(missed, 4)])
        most = f". It misses by {off[best, worst]:.2g} of its deviations"
        most += f", and {missed - 1} others by less: {names}" if names else ""
    return UnmetError(
        f"{declared.path}: baseline '{row}'",
        f"{what}: nearest to {paper[worst]:g}{unit} ± {deviation[worst]:.2g} is "
        f"{measured[best, worst]:.4g}{unit}, at {at} ({len(found.shares)} points){most}",
        f"All rows' deviations would have to be {found.widened:.2g} times as wide, and more than "
        f"{HOPELESS:g} is no noise. Widen a free parameter's range or the uncertainty if the text "
        "allows it; else the model lacks what this row needs: state the uncertainty that it has "
        f"for you. {folder / TABLE} has all rows of the nearest point",
        Nearest(
            declared=declared,
            ebb=ebb,
            points=len(found.shares),
            refused=found.refused,
            refusal=refusal,
            point=points[near].tolist(),
            ends=found.ends,
            values=measured[near],
            off=signed[near],
        ),
    )


def told(declared: Declaration, point: list[float]) -> str:
    """A point for people."""
    pairs = zip(declared.free, point, strict=True)
    return ", ".join(f"{free.name}={free.written(value)}" for free, value in pairs)


def tell(found: Nearest) -> str:
    """Its rows, the worst first."""
    rows = found.declared.baseline
    table = text.table(
        ("not accepted", "measured", "twin", "deviations off", ""),
        [
            (
                f"{rows[at]}, {rows[at].unit}" if rows[at].unit else str(rows[at]),
                f"{text.number(rows[at].paper)} ± {text.number(rows[at].deviation, 2)}",
                text.number(found.values[at]),
                f"{found.off[at]:+.1f}",
                "" if abs(found.off[at]) <= FAR else "misses",
            )
            for at in np.argsort(-np.abs(found.off), kind="stable")
        ],
    )
    met = int((np.abs(found.off) <= FAR).sum())
    return (
        f"{found.declared.name}, simulated: none of {found.points} points meets the baseline. The "
        f"nearest meets {met} of {len(rows)} rows, at {told(found.declared, found.point)}:\n{table}"
    )


def write(found: Nearest, folder: Path) -> None:
    """Writes `not-accepted.csv`."""
    partial = (folder / TABLE).with_suffix(".partial")
    with partial.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("row", "source", "unit", "measured", "deviation", "twin", "deviations off"))
        for row, value, off in zip(found.declared.baseline, found.values, found.off, strict=True):
            lines.writerow(
                (
                    *(row.name, row.source, row.unit, row.paper),
                    *(f"{row.deviation:.6g}", f"{value:.6g}", f"{off:.3f}"),
                )
            )
    partial.replace(folder / TABLE)
