"""A fit for people."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ebb_lab import text
from ebb_lab.fitting import nearest, outcome, posterior
from ebb_lab.fitting.declaration import Declaration, Row
from ebb_lab.fitting.nearest import Nearest
from ebb_lab.fitting.predicting import Decided, Joint, Predicted
from ebb_lab.fitting.study import Fit, LeftOut

#: By how many of their uncertainties repeats may differ from their mean before it is told.
REPEATS = 2.0
#: From so many deviations on between its ends a row's prediction is left open.
OPEN = 4.0
#: Points of a curve that are printed; `fit.json` has all.
CURVE = 6


def tell(fit: Fit, folder: Path) -> str:
    """Parameters, baseline, predictions with their verdicts, rows left out."""
    declared, found = fit.declared, fit.found
    told = f"fitted at {len(found.shares)} points"
    told = told if declared.free else "nothing is free, the profile as it is"
    lines = [f"{declared.name}, simulated: {told}; declared in {declared.path} ({fit.commit})"]
    lines += [*_disagreement(fit), *_refused(found.refused, fit.refusal), *_repeats(declared)]
    if declared.free:
        lines += [_free(fit), *_ends(declared, found.ends)]
    lines += [
        text.table(
            ("baseline", "paper", "90 % range", "central"),
            [
                (
                    _named(row.name, row.unit),
                    f"{text.number(row.paper)} ± {text.number(found.deviation[index], 2)}",
                    _span(*_extremes(fit.fitted[:, index])),
                    text.number(fit.fitted[0, index]),
                )
                for index, row in enumerate(declared.baseline)
            ],
        ),
    ]
    if fit.predictions:
        lines += [_predictions(fit), *_savings(fit.predictions), *_jointly(fit.joint)]
        lines += [_curve(each.row.name, each.decided) for each in fit.predictions if each.decided]
    if fit.left_out:
        lines.append(_left_out(fit.left_out))
    lines.append(f"  ebb sim --experiment {folder / outcome.CENTRAL}")
    return "\n".join(lines)


def _disagreement(fit: Fit) -> list[str]:
    """What widens the ranges beyond what the rows' numbers do."""
    found, told = fit.found, []
    if found.widened > 1:
        told.append(
            f"  Model and rows disagree by more than chance: all deviations are widened "
            f"{found.widened:.3g} times (Birge's ratio), and the ranges with them."
        )
    share = found.error / found.deviation
    if (share > posterior.SMALL).any():
        worst = fit.declared.baseline[int(np.argmax(share))]
        told.append(
            f"  Between its points the fit knows '{worst}' to {share.max():.2g} of its deviation; "
            "more 'points' may narrow the ranges."
        )
    return told


def tell_nearest(found: Nearest) -> str:
    """What came nearest where no point meets the baseline."""
    notes = [*_refused(found.refused, found.refusal), *_repeats(found.declared)]
    notes += _ends(found.declared, found.ends)
    return "\n".join([nearest.tell(found), *notes])


def _ends(declared: Declaration, ends: Sequence[tuple[bool, bool]]) -> list[str]:
    """Ranges that are the declaration's."""
    told = []
    for free, (low, high) in zip(declared.free, ends, strict=True):
        sides = [name for name, at in (("low", low), ("high", high)) if at]
        if sides:
            told.append(
                f"  '{free.name}' reaches the {' and the '.join(sides)} end of what was declared: "
                "the baseline does not bound it there, the range is the declaration's."
            )
    return told


def _repeats(declared: Declaration) -> list[str]:
    """Lines that count as repeats and differ as other settings would."""
    rows = (*declared.baseline, *declared.predictions)
    wide = [row for row in rows if row.repeats > REPEATS]
    if not wide:
        return []
    worst = max(wide, key=lambda row: row.repeats)
    return [
        f"  Lines that count as repeats differ by more than their uncertainty in {len(wide)} rows, "
        f"most in '{worst}' (± {text.number(worst.uncertainty, 2)}): is a column missing under "
        "[measured.set]?"
    ]


def _refused(points: int, why: str | None) -> list[str]:
    if not points:
        return []
    are = "point is" if points == 1 else "points are"
    return [f"  {points} {are} no possible server and left out; the first: {why}"]


def _free(fit: Fit) -> str:
    return text.table(
        ("free", "declared", "90 % range", "central"),
        [
            (
                _named(free.name, free.unit),
                _span(free.low, free.high),
                _span(*fit.ranges[index].tolist()),
                text.number(fit.samples[0, index]),
            )
            for index, free in enumerate(fit.declared.free)
        ],
    )


def _predictions(fit: Fit) -> str:
    rows = [
        (
            _named(each.row.name, each.row.unit),
            text.number(each.row.paper),
            text.number(each.mean),
            _span(*each.range),
            _span(*each.seeds),
            text.percent(each.row.error_of(each.mean)),
            each.verdict or "",
        )
        for each in fit.predictions
    ]
    header = ("predicted", "paper", "mean", "90 % range", "over seeds", "error", "")
    told = text.table(header, rows)
    seeds = len(fit.declared.prediction_seeds)
    draws = len(fit.samples) - 1
    told += (
        f"\n  Ranges over {draws} draws, each with a seed of its own; over {seeds} seeds at the "
        "central one."
        if draws
        else f"\n  Ranges over {seeds} seeds."
    )
    if fit.declared.tables and not fit.declared.judged:
        held = [(each.row, each.row.error_of(each.mean)) for each in fit.predictions]
        told += "\n" + _errors("held out", held)
    return told


def _savings(rows: Sequence[Predicted]) -> list[str]:
    """What policies take less of than others, with its range."""
    return [
        f"  {each.row.name}: {each.row.of} takes {1 - each.mean:.1%} less than {each.row.over} "
        f"({1 - each.range[1]:.1%} … {1 - each.range[0]:.1%})."
        for each in rows
        if each.row.over and each.range[1] < 1
    ]


def _jointly(joint: Joint | None) -> list[str]:
    if joint is None or joint.rows < 2:
        return []
    if joint.all:
        return [f"  {joint.all} of {joint.draws} draws meet all {joint.rows} stated rows."]
    missed = ", ".join(f"'{name}'" for name in joint.missed)
    return [
        f"  None of {joint.draws} draws meets all {joint.rows} stated rows; the best meets "
        f"{joint.best}, but not {missed}."
    ]


def _curve(name: str, decided: Decided) -> str:
    picked = np.unique(np.linspace(0, len(decided.x) - 1, CURVE).round().astype(int))
    points = ", ".join(
        f"{text.number(decided.y[index], 3)} at {text.number(decided.x[index], 3)}"
        for index in picked
    )
    unit = f" {decided.unit}" if decided.unit else ""
    return f"  {name} over {decided.parameter} (R² {decided.share:.2f}): {points}{unit}"


def _left_out(rows: tuple[LeftOut, ...]) -> str:
    table = text.table(
        ("left out", "paper", "mean", "90 % range", "error"),
        [
            (
                _named(each.row.name, each.row.unit),
                text.number(each.row.paper),
                text.number(each.mean),
                "–" if each.range is None else _span(*each.range),
                text.percent(each.error),
            )
            for each in rows
        ],
    )
    wide = [each.widened for each in rows if each.widened > 1]
    note = f"\n  {len(wide)} rows were predicted" if wide else ""
    note += f" with deviations up to {max(wide):.3g} times as wide." if wide else ""
    loose = [each for each in rows if each.range and _width(each) > OPEN * each.row.deviation]
    if loose:
        worst = max(loose, key=lambda each: _width(each) / each.row.deviation)
        note += (
            f"\n  {len(loose)} of them the other rows leave open, most '{worst.row}': measure more "
            "lines of its kind, or state what it hangs on."
        )
    errors = _errors("left out", [(each.row, each.error) for each in rows])
    return f"{table}\n{errors}{note}"


def _width(each: LeftOut) -> float:
    """Of the range over the draws."""
    low, high = each.range or (0.0, 0.0)
    return high - low


def _errors(what: str, rows: Sequence[tuple[Row, float | None]]) -> str:
    """How good the predictions of each value are: watts and latencies have errors of their own."""
    values: dict[str, list[float | None]] = {}
    for row, error in rows:
        over = f" over {row.over}'s" if row.over else ""
        values.setdefault(row.value + over, []).append(error)
    told = []
    for value, all_errors in values.items():
        errors = [abs(error) for error in all_errors if error is not None]
        mean = f"{sum(errors) / len(errors):.1%}" if errors else "–"
        largest = f"{max(errors):.1%}" if errors else "–"
        told.append((value, f"{len(errors)} of {len(all_errors)}", mean, largest))
    return text.table((f"error of rows that were {what}", "predicted", "mean", "largest"), told)


def _named(name: str, unit: str) -> str:
    return f"{name}, {unit}" if unit else name


def _span(low: float, high: float) -> str:
    return f"{text.number(low)} … {text.number(high)}"


def _extremes(values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> tuple[float, float]:
    return float(values.min()), float(values.max())
