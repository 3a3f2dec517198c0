"""What a study's fit declares, in one TOML file that is in git before its predictions are made.

policy = "pacman"             # judged: none of the baseline's rows may be of it
[options]                     # of every run: options of `ebb sim`
profile = "asg-1115s"

[[free]]                      # what the text leaves open
name = "depth"
set = "option:depth"          # or "profile:cpu.uncore", "workload:jobs.mail.depth", or a list
low = 1
high = 32
whole = true
why = "the text states jobs, not queue depths"

[runs.array]                  # an `ebb sim`
workload = "fio-servers"
policy = ["sspc", "pacman"]

[[baseline]]                  # what the parameters are fitted to
name = "drives' power under SSPC"
run = "array"
of = "sspc"
value = "energy_joules_ssd / seconds"
paper = 140
uncertainty = 5               # a standard deviation, or "5%"; without it only the rounding counts
unit = "W"

[[prediction]]                # the same, with `over` for a ratio to another policy's value
name = "throughput over SSPC"
run = "array"
of = "pacman"
over = "sspc"
value = "bytes / seconds"
paper = 1.41                  # with `bound = "most"` or "least" where it is one; or, in place of
                              # `paper` and `source`, stated = "fig-5b/throughput", the name of a
                              # number in the stated.toml beside it; percent count as ratios

[[prediction]]                # of a policy that no text has: no `paper`, and no verdict
name = "throughput of pacman-plus over PACMAN"
run = "array"
of = "pacman-plus"
over = "pacman"
value = "bytes / seconds"
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from ebb_lab import toml
from ebb_lab.errors import LabError, did_you_mean
from ebb_lab.fitting import measured, values
from ebb_lab.fitting.measured import Measured
from ebb_lab.fitting.stated import resolved

KEYS = (
    *("name", "policy", "seed", "seeds", "prediction-seeds", "points", "forecast", "leave-out"),
    *("options", "free", "runs", "baseline", "prediction", "measured"),
)
FREE = ("name", "set", "low", "high", "unit", "why", "log", "whole", "plain")
ROW = (
    *("name", "source", "run", "of", "over", "value"),
    *("stated", "paper", "uncertainty", "unit", "bound"),
)
#: What a free parameter can be written into.
PLACES = ("option", "profile", "workload")
#: What a stated number can be the end of.
BOUNDS = ("most", "least")
#: Fewer seeds show no range (DESIGN).
LEAST_SEEDS = 10
#: The range of n exchangeable draws covers a further one with probability (n - 1) / (n + 1):
#: 19 draws give a 90 % range.
FORECAST = 19


@dataclass(frozen=True)
class Target:
    """Where a value is written: an option, or a place in the profile or the workload's file."""

    place: str
    path: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Self:
        """That which a text such as `profile:cpu.uncore` names."""
        place, _, path = text.partition(":")
        return cls(place, tuple(path.split(".")))

    def __str__(self) -> str:
        return f"{self.place}:{'.'.join(self.path)}"


@dataclass(frozen=True)
class Free:
    """A parameter that the text leaves open, with the range that it leaves."""

    name: str
    targets: tuple[Target, ...]
    low: float
    high: float
    unit: str
    why: str
    log: bool = False
    whole: bool = False
    #: Written without its unit.
    plain: bool = False

    def at(self, share: float) -> float:
        """The value at a share of the range, from 0 to 1; six digits, so that files stay short."""
        if self.whole:
            return min(self.high, self.low + int(share * (self.high - self.low + 1)))
        if self.log:
            return float(f"{self.low * (self.high / self.low) ** share:.6g}")
        return float(f"{self.low + share * (self.high - self.low):.6g}")

    def written(self, value: float) -> int | float | str:
        """As it stands in a file or on the command line."""
        number = int(value) if self.whole else value
        return number if self.plain or not self.unit else f"{number} {self.unit}"


@dataclass(frozen=True)
class Row:
    """A published number and the value of a run that stands beside it; or, in a prediction, the
    value alone."""

    name: str
    source: str
    run: str
    of: str
    over: str | None
    value: str
    paper: float | None
    uncertainty: float
    unit: str
    #: Half of what the last digit of the number, as written, counts.
    rounding: float = 0.0
    #: Whether the number is the most or the least that is stated, and no value.
    bound: str | None = None
    #: One of `unit` in the value's own.
    scale: float = 1.0
    #: Half of what repeats differ by, in stated uncertainties.
    repeats: float = 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of the number: the true one is anywhere in what rounds to it."""
        return math.hypot(self.uncertainty, self.rounding / math.sqrt(3.0))

    @property
    def half(self) -> float:
        """How far to both sides of the number its range goes."""
        return max(self.uncertainty, self.rounding)

    @property
    def policies(self) -> set[str]:
        """Whose results it reads."""
        return {self.of} | ({self.over} if self.over else set())

    def error_of(self, mean: float | None) -> float | None:
        """Of a value that the twin has, as a share of the published number."""
        return None if mean is None or not self.paper else mean / self.paper - 1.0

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Declaration:
    """A study's fit, checked."""

    path: Path
    text: str
    name: str
    judged: tuple[str, ...]
    seed: int
    #: Points of the search at most.
    points: int
    #: Draws of the posterior that predictions run on.
    forecast: int
    seeds: tuple[int, ...]
    prediction_seeds: tuple[int, ...]
    leave_out: str | None
    #: Options of `ebb sim`, and places of a profile or workload with what is written there.
    runs: dict[str, dict[str, Any]]
    #: Tables that rows were read from.
    tables: tuple[Path, ...]
    free: tuple[Free, ...]
    baseline: tuple[Row, ...]
    predictions: tuple[Row, ...]

    @property
    def folder(self) -> Path:
        """Names of files are relative to it."""
        return self.path.resolve().parent


def read(path: Path) -> Declaration:
    """A declaration from its file, checked."""
    text, table = toml.read(path, "A fit's declaration", KEYS)
    tables = tuple(measured.read(path, _tables(path, table, "measured")))
    for key in () if tables else ("free", "runs", "baseline"):
        if not table.get(key):
            raise LabError(f"{path}: {key}", "is not stated", "docs/lab.md has an example")
    judged = table.get("policy", [])
    runs = _runs(path, table, tables)
    found = Declaration(
        path=path,
        text=text,
        name=toml.text(str(path), table, "name", path.stem),
        judged=tuple(map(str, judged if isinstance(judged, list) else [judged])),
        seed=toml.whole(str(path), table, "seed", 1),
        points=toml.whole(str(path), table, "points", 256, least=8),
        forecast=toml.whole(str(path), table, "forecast", FORECAST, least=4),
        seeds=tuple(range(1, 1 + toml.whole(str(path), table, "seeds", 3))),
        prediction_seeds=tuple(
            range(
                1001,
                1001 + toml.whole(str(path), table, "prediction-seeds", LEAST_SEEDS, LEAST_SEEDS),
            )
        ),
        leave_out=_leave_out(path, table),
        runs=runs,
        tables=tuple(each.path for each in tables),
        free=tuple(_free(path, each) for each in _tables(path, table, "free")),
        baseline=(
            *(_row(path, "baseline", row) for row in _tables(path, table, "baseline")),
            *(
                _measured(path, row, runs)
                for each in tables
                if not each.prediction
                for row in each.rows
            ),
        ),
        predictions=(
            *(_row(path, "prediction", row) for row in _tables(path, table, "prediction")),
            *(
                _measured(path, row, runs)
                for each in tables
                if each.prediction
                for row in each.rows
            ),
        ),
    )
    _check(found)
    return found


def _tables(path: Path, table: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise LabError(f"{path}: {key}", "is no list of tables", f"Write [[{key}]]")
    return found


def _leave_out(path: Path, table: Mapping[str, Any]) -> str | None:
    # Where nothing is fitted each row is a prediction.
    found = table.get("leave-out", None if table.get("free") else "row")
    if found not in (None, "row", "source"):
        raise LabError(f"{path}: leave-out", f"is {found!r}", "'row', or 'source' for figures")
    return None if found is None else str(found)


def _runs(
    path: Path, table: Mapping[str, Any], tables: Sequence[Measured]
) -> dict[str, dict[str, Any]]:
    options, runs = table.get("options", {}), table.get("runs", {})
    if not isinstance(options, dict) or not isinstance(runs, dict):
        raise LabError(f"{path}: runs", "is no table", "Write [runs.NAME]")
    found: dict[str, dict[str, Any]] = {}
    pairs = [*runs.items(), *(run for each in tables for run in each.runs.items())]
    for name, own in pairs:
        where = f"{path}: runs.{name}"
        if not isinstance(own, dict):
            raise LabError(where, "is no table", f"Write [runs.{name}]")
        stated = dict(options) | own
        if "seed" in stated:
            raise LabError(where, "'seed' is the declaration's own", "Leave it out there")
        for key in stated:
            if ":" in key and _target(where, key).place == "option":
                raise LabError(where, f"'{key}' is an option", f"Write {key.partition(':')[2]}")
        policies = stated.get("policy") or ["native"]
        stated["policy"] = policies if isinstance(policies, list) else [policies]
        if found.get(name, stated) != stated:
            raise LabError(where, "is there twice, with other options", "A name for each")
        found[name] = stated
    return found


def _measured(path: Path, row: Mapping[str, Any], runs: Mapping[str, Mapping[str, Any]]) -> Row:
    """The row of a measured table: of the run's first policy."""
    spread, place = float(row["spread"]), row["place"]
    own = ("spread", "rounding", "place")
    stated = {key: value for key, value in row.items() if key not in own}
    found = _row(path, "baseline", stated | {"of": runs[row["run"]]["policy"][0]})
    if not max(found.uncertainty, spread) > 0:
        raise LabError(
            f"{place}: '{found}'",
            f"is {found.paper:g}, of which percents are 0",
            "Leave the cell empty, or state 'uncertainty' as a number",
        )
    uncertainty = max(found.uncertainty, spread)
    repeats = spread / found.uncertainty if found.uncertainty else 0.0
    return replace(found, uncertainty=uncertainty, rounding=row["rounding"], repeats=repeats)


def _free(path: Path, table: Mapping[str, Any]) -> Free:
    name = toml.text(f"{path}: free", table, "name")
    if not name:
        raise LabError(f"{path}: free", "'name' is not stated", "A name for each [[free]]")
    where = f"{path}: free.{name}"
    toml.known(where, table, FREE)
    low, high = (_number(where, table, key) for key in ("low", "high"))
    log, whole = toml.flag(where, table, "log"), toml.flag(where, table, "whole")
    if not low < high or (log and low <= 0):
        raise LabError(where, f"{low:g} to {high:g} is no range", "low below high, above 0 for log")
    if whole and not (low.is_integer() and high.is_integer()):
        raise LabError(where, f"{low:g} to {high:g} are no whole numbers", "As 'whole' says")
    if not toml.text(where, table, "why"):
        raise LabError(where, "'why' is not stated", "Say why the text leaves it open")
    names = table.get("set", [])
    targets = tuple(
        _target(where, each) for each in (names if isinstance(names, list) else [names])
    )
    if not targets:
        raise LabError(where, "'set' is not stated", 'Such as set = "option:depth"')
    return Free(
        name=name,
        targets=targets,
        low=low,
        high=high,
        unit=toml.text(where, table, "unit"),
        why=table["why"],
        log=log,
        whole=whole,
        plain=toml.flag(where, table, "plain"),
    )


def _target(where: str, text: Any) -> Target:
    place, _, path = str(text).partition(":")
    if place not in PLACES or not re.fullmatch(r"[^.\s]+(\.[^.\s]+)*", path):
        raise LabError(
            where, f"set = {text!r} is no place", "option:NAME, profile:PATH or workload:PATH"
        )
    return Target.of(str(text))


def _number(where: str, table: Mapping[str, Any], key: str) -> float:
    found = table.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise LabError(f"{where}: {key}", f"is {found!r}", "A number, in the unit of 'unit'")
    return float(found)


def _row(path: Path, kind: str, table: Mapping[str, Any]) -> Row:
    name = str(table.get("name", "?"))
    where = f"{path}: {kind} '{name}'"
    toml.known(where, table, ROW)
    table = resolved(path, where, table)
    needed = ("name", "run", "of", "value") + (("paper",) if kind == "baseline" else ())
    for key in needed:
        if key not in table:
            raise LabError(where, f"'{key}' is not stated", "docs/lab.md has an example")
    value, unit = str(table["value"]), toml.text(where, table, "unit")
    values.check(f"{where}: value", value)
    over = None if table.get("over") is None else str(table["over"])
    paper = _number(where, table, "paper") if "paper" in table else None
    bound = toml.text(where, table, "bound") or None
    if bound not in (None, *BOUNDS):
        raise LabError(f"{where}: bound", f"is {bound!r}", "'most' or 'least'")
    for key in ("uncertainty", "bound"):
        if paper is None and key in table:
            raise LabError(f"{where}: {key}", "stands without 'paper'", "State both or neither")
    return Row(
        name=name,
        source=str(table.get("source", "")),
        run=str(table["run"]),
        of=str(table["of"]),
        over=over,
        value=value,
        paper=paper,
        uncertainty=_uncertainty(where, table, paper),
        unit=unit,
        rounding=toml.rounding(table.get("paper")),
        bound=bound,
        # A ratio has no unit of its own.
        scale=values.scale(f"{where}: unit", value, unit) if over is None else 1.0,
    )


def _uncertainty(where: str, table: Mapping[str, Any], paper: float | None) -> float:
    stated = table.get("uncertainty", 0.0)
    if isinstance(stated, str):
        number = stated.removesuffix("%").strip()
        share = float(number) / 100 if re.fullmatch(r"\d+\.?\d*", number) else -1.0
        stated = abs(paper or 0.0) * share if stated.endswith("%") else -1.0
    known = isinstance(stated, int | float) and not isinstance(stated, bool)
    if not known or not 0 <= stated < math.inf:
        raise LabError(
            f"{where}: uncertainty", "is no such number", 'In the row\'s unit, or such as "5%"'
        )
    return float(stated)


def _check(found: Declaration) -> None:
    """What holds between the parts of a declaration."""
    path = found.path
    for kind, rows in (("baseline", found.baseline), ("prediction", found.predictions)):
        for row in rows:
            where = f"{path}: {kind} '{row}'"
            if [str(each) for each in rows].count(row.name) > 1:
                raise LabError(where, "two rows have this name", "State a name for each")
            if row.run not in found.runs:
                raise LabError(where, f"no run '{row.run}'", did_you_mean(row.run, found.runs))
            for policy in row.policies:
                if policy not in found.runs[row.run]["policy"]:
                    known = found.runs[row.run]["policy"]
                    raise LabError(
                        where, f"run '{row.run}' has no '{policy}'", did_you_mean(policy, known)
                    )
    _check_baseline(found)
    _check_free(found)
    fitted = {policy.partition("(")[0] for row in found.baseline for policy in row.policies}
    predicted = {policy.partition("(")[0] for row in found.predictions for policy in row.policies}
    if predicted - fitted and not found.judged:
        raise LabError(f"{path}: policy", "is not stated", "Name the policy that is judged")


def _check_free(found: Declaration) -> None:
    path = found.path
    names = [each.name for each in found.free]
    for free in found.free:
        if names.count(free.name) > 1:
            raise LabError(f"{path}: free.{free.name}", "is there twice", "One name for each")
    places = [target for free in found.free for target in free.targets]
    for target in places:
        if places.count(target) > 1:
            raise LabError(f"{path}: free", f"{target} is set twice", "One parameter for a place")
        for name, run in found.runs.items():
            stated = target.path[0] if target.place == "option" else str(target)
            if stated in run:
                raise LabError(
                    f"{path}: free", f"run '{name}' states '{stated}' too", "State it once"
                )


def _check_baseline(found: Declaration) -> None:
    predicted = {(row.run, row.of, row.over, row.value) for row in found.predictions}
    judged = {policy.partition("(")[0] for policy in found.judged}
    for row in found.baseline:
        where = f"{found.path}: baseline '{row}'"
        for policy in row.policies:
            if judged & {part.partition("(")[0] for part in policy.split("+")}:
                raise LabError(
                    where,
                    f"is of {policy}, the policy that is judged",
                    "Fit to other policies' rows only; this one is a prediction",
                )
        if (row.run, row.of, row.over, row.value) in predicted:
            raise LabError(where, "is a prediction too", "What is fitted cannot be predicted")
        if row.bound:
            raise LabError(f"{where}: bound", "stands in a row of the baseline", "Only predicted")
    groups = {row.name if found.leave_out == "row" else row.source for row in found.baseline}
    if found.leave_out and found.free and len(groups) < 2:
        raise LabError(
            f"{found.path}: leave-out",
            "leaves no row to fit",
            "It takes two rows or sources; with one leave 'leave-out' out",
        )
