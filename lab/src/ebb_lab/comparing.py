"""`ebb-lab compare`: groups of repeats in a table, compared by the paper's method."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ebb_lab import statistics, tables, text
from ebb_lab.errors import LabError
from ebb_lab.statistics import Comparison, Correction

if TYPE_CHECKING:
    import pandas as pd

#: Columns that tell repeats of one experiment apart, where a table has them.
REPEATS = ("seed", "repeat", "run")


@dataclass(frozen=True)
class Question:
    """What to compare. Rows that agree in all columns of `within` are one experiment."""

    by: str
    values: Sequence[str]
    within: Sequence[str] = ()
    where: Sequence[str] = ()
    groups: Sequence[str] = ()
    alpha: float = 0.05
    confidence: float = 0.95
    correction: Correction = "holm"
    repeat: str | None = None


#: What a reader of a closed loop's latencies must know.
_CLOSED = (
    "closed loop: a slower server gets fewer requests, and latency leaves out what those would "
    "have waited; see iops"
)


def compare(table: tables.Table, question: Question) -> list[Comparison]:
    """One comparison for each experiment and value, in the order of the table's rows."""
    repeat = question.repeat or next((c for c in REPEATS if c in table.frame.columns), None)
    for column in (question.by, *question.values, *question.within):
        table.need(column)
    if question.repeat:
        table.need(question.repeat)
    frame = _kept(table, question)
    found = []
    for name, part in _experiments(frame, question.within):
        for value in question.values:
            found.append(_one(table, question, name, part, value, repeat))
    return found


def tell(comparison: Comparison) -> str:
    """A comparison for people: the result in a sentence, then the numbers."""
    unit = f" ({comparison.unit})" if comparison.unit else ""
    level = f"{comparison.confidence:.0%} interval"
    groups = [
        (
            each.name,
            str(each.n),
            text.number(each.median),
            f"{text.number(each.low)} … {text.number(each.high)}",
            _normal(each.normality_p, comparison.alpha),
        )
        for each in comparison.groups
    ]
    pairs = [
        (
            f"{each.b} against {each.a}",
            text.number(each.difference),
            text.percent(each.relative),
            "–"
            if each.relative is None
            else f"{text.percent(each.relative_low)} … {text.percent(each.relative_high)}",
            f"{each.p:.3g}",
            f"{each.cliffs_delta:+.2f}",
            "different" if each.different else "no difference shown",
        )
        for each in comparison.pairs
    ]
    lines = [
        f"{comparison.value}{unit} in {comparison.experiment}: {comparison.conclusion}",
        text.table(("group", "n", "median", level, "normal?"), groups),
        "",
        text.table(("pair", "difference", "", level, "Dunn's p", "delta", ""), pairs),
        f"  Kruskal-Wallis H = {comparison.kruskal_h:.4g}, p = {comparison.kruskal_p:.3g}, "
        f"epsilon² = {comparison.epsilon_squared:.2f}; correction {comparison.correction}; "
        f"alpha {comparison.alpha:g}",
    ]
    return "\n".join(lines + [f"  Note: {note}." for note in comparison.notes])


def as_json(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """What `--json` prints (docs/json-schema/lab-compare-1.json)."""
    return {
        "schema": 1,
        "comparisons": [
            dataclasses.asdict(each) | {"different": each.different, "conclusion": each.conclusion}
            for each in comparisons
        ],
    }


def _one(
    table: tables.Table,
    question: Question,
    experiment: str,
    part: pd.DataFrame,
    value: str,
    repeat: str | None,
) -> Comparison:
    named = list(question.groups) or list(dict.fromkeys(part[question.by]))
    groups: dict[str, list[float]] = {}
    rows = part.index[part[question.by].isin(named)]
    everything, unit = tables.numbers(table, value, rows, f"in {experiment}")
    by_row = dict(zip(rows, everything, strict=True))
    for name in named:
        mine = part.index[part[question.by] == name]
        _check_repeats(table, experiment, f"{question.by}={name}", mine, question, repeat)
        groups[name] = [by_row[row] for row in mine]
    found = statistics.compare(
        groups,
        experiment=experiment,
        value=value,
        unit=unit,
        alpha=question.alpha,
        confidence=question.confidence,
        correction=question.correction,
    )
    return dataclasses.replace(found, notes=(*found.notes, *_of_runs(part, value)))


def _of_runs(part: pd.DataFrame, value: str) -> list[str]:
    """What the runs of a table of `ebb sim` say of themselves."""
    notes = []
    closed = "closed_loop" in part and part["closed_loop"].astype(str).eq("True").any()
    if closed and "latency" in value:
        notes.append(_CLOSED)
    # Missing where a run has settled.
    why = [each for each in part.get("unsettled", ()) if isinstance(each, str) and each]
    if why:
        notes.append(f"no figure for longer than these runs: {why[0]}")
    return notes


def _kept(table: tables.Table, question: Question) -> pd.DataFrame:
    """The rows that every `COLUMN=VALUE` of `where` keeps, grouping columns as text."""
    frame = table.frame.copy()
    for condition in question.where:
        column, sign, wanted = condition.partition("=")
        if not sign:
            raise LabError(f"--where {condition}", "no '='", "Such as --where profile=pass-10")
        table.need(column)
        frame = frame[frame[column].astype(str) == wanted]
        if frame.empty:
            there = ", ".join(sorted(set(table.frame[column].astype(str)))[:10])
            raise LabError(f"--where {condition}", "keeps no row", f"'{column}' has: {there}")
    for column in (question.by, *question.within):
        empty = frame[column].isna() | (frame[column].astype(str) == "")
        if empty.any():
            place = table.place(int(frame.index[empty][0]))
            raise LabError(
                place, f"'{column}' is empty", "Fill it in, or leave the row out with --where"
            )
        frame[column] = frame[column].astype(str)
    return frame


def _experiments(frame: pd.DataFrame, within: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    if not within:
        return [("the whole table", frame)]
    found = []
    for keys, part in frame.groupby(list(within), sort=False):
        parts = zip(within, keys, strict=True)
        found.append((", ".join(f"{column}={key}" for column, key in parts), part))
    return found


def _check_repeats(
    table: tables.Table,
    experiment: str,
    group: str,
    rows: pd.Index,
    question: Question,
    repeat: str | None,
) -> None:
    """Refuses a group in which a repeat comes twice: copies, or experiments mixed up."""
    if repeat is None:
        return
    seeds = table.frame.loc[rows, repeat]
    twice = seeds[seeds.duplicated(keep=False)]
    if twice.empty:
        return
    same = table.frame.loc[twice.index[twice == twice.iloc[0]]]
    told = {question.by, repeat, *question.values, *question.within}
    varied = [
        column
        for column in table.frame.columns
        if column not in told and same[column].map(str).nunique() > 1
    ]
    # Results differ too where experiments do; parameters come first in every table of ours.
    remedy = (
        f"Rows differ in {', '.join(varied[:4])}: name what tells experiments apart by --within, "
        "or choose one by --where"
        if varied
        else f"Keep one of each; copies are no repeats ({table.place(int(same.index[1]))})"
    )
    raise LabError(
        f"in {experiment}",
        f"group '{group}' has {repeat} {twice.iloc[0]} {len(same)} times",
        remedy,
    )


def _normal(p: float | None, alpha: float) -> str:
    if p is None:
        return "constant"
    bound = {0.001: "≤ ", 0.99: "≥ "}.get(round(p, 6), "")
    return f"{'no' if p <= alpha else 'not refuted'} (p {bound}{p:.2g})"
