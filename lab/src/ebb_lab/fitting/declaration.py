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

[[baseline]]                  # what the region has to meet
name = "drives' power under SSPC"
run = "array"
of = "sspc"
value = "energy_joules_ssd / seconds"
paper = 140
uncertainty = 5               # or "5%"
unit = "W"

[[prediction]]                # the same, with `over` for a ratio to another policy's value
name = "throughput over SSPC"
run = "array"
of = "pacman"
over = "sspc"
value = "bytes / seconds"
paper = 1.41
tolerance = 0.1               # wider over the region: not identified

[[prediction]]                # of a policy that no text has: no `paper`, and no verdict
name = "throughput of pacman-plus over PACMAN"
run = "array"
of = "pacman-plus"
over = "pacman"
value = "bytes / seconds"
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebb_lab import toml
from ebb_lab.errors import LabError, did_you_mean
from ebb_lab.fitting import values

KEYS = (
    *("name", "policy", "seed", "seeds", "prediction-seeds", "points", "accepted", "forecast"),
    *("leave-out", "options", "free", "runs", "baseline", "prediction"),
)
FREE = ("name", "set", "low", "high", "unit", "why", "log", "whole", "plain")
ROW = ("name", "source", "run", "of", "over", "value", "paper", "uncertainty", "unit", "tolerance")
#: What a free parameter can be written into.
PLACES = ("option", "profile", "workload")
#: Fewer seeds show no range (DESIGN).
LEAST_SEEDS = 10


@dataclass(frozen=True)
class Target:
    """Where a value is written: an option, or a place in the profile or the workload's file."""

    place: str
    path: tuple[str, ...]

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
    tolerance: float | None = None

    @property
    def policies(self) -> set[str]:
        """Whose results it reads."""
        return {self.of} | ({self.over} if self.over else set())

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
    #: Points of the search at most, and accepted ones after which it stops.
    points: int
    accepted: int
    #: Samples of the region that predictions run on, at most.
    forecast: int
    seeds: tuple[int, ...]
    prediction_seeds: tuple[int, ...]
    leave_out: str | None
    runs: dict[str, dict[str, Any]]
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
    for key in ("free", "runs", "baseline"):
        if not table.get(key):
            raise LabError(f"{path}: {key}", "is not stated", "docs/lab.md has an example")
    judged = table.get("policy", [])
    found = Declaration(
        path=path,
        text=text,
        name=str(table.get("name", path.stem)),
        judged=tuple(map(str, judged if isinstance(judged, list) else [judged])),
        seed=toml.whole(str(path), table, "seed", 1),
        points=toml.whole(str(path), table, "points", 256, least=8),
        accepted=toml.whole(str(path), table, "accepted", 32),
        forecast=toml.whole(str(path), table, "forecast", 12, least=4),
        seeds=tuple(range(1, 1 + toml.whole(str(path), table, "seeds", 3))),
        prediction_seeds=tuple(
            range(
                1001,
                1001 + toml.whole(str(path), table, "prediction-seeds", LEAST_SEEDS, LEAST_SEEDS),
            )
        ),
        leave_out=_leave_out(path, table),
        runs=_runs(path, table),
        free=tuple(_free(path, each) for each in _tables(path, table, "free")),
        baseline=tuple(_row(path, "baseline", row) for row in _tables(path, table, "baseline")),
        predictions=tuple(
            _row(path, "prediction", row) for row in _tables(path, table, "prediction")
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
    found = table.get("leave-out")
    if found is not None and found not in ("row", "source"):
        raise LabError(f"{path}: leave-out", f"is {found!r}", "'row', or 'source' for figures")
    return found


def _runs(path: Path, table: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    options, runs = table.get("options", {}), table["runs"]
    if not isinstance(options, dict) or not isinstance(runs, dict):
        raise LabError(f"{path}: runs", "is no table", "Write [runs.NAME]")
    found = {}
    for name, own in runs.items():
        where = f"{path}: runs.{name}"
        if not isinstance(own, dict):
            raise LabError(where, "is no table", f"Write [runs.{name}]")
        stated = dict(options) | own
        if "seed" in stated:
            raise LabError(where, "'seed' is the declaration's own", "Leave it out there")
        policies = stated.get("policy", ["native"])
        found[name] = stated | {"policy": policies if isinstance(policies, list) else [policies]}
    return found


def _free(path: Path, table: Mapping[str, Any]) -> Free:
    name = str(table.get("name", "?"))
    where = f"{path}: free.{name}"
    toml.known(where, table, FREE)
    low, high = (_number(where, table, key) for key in ("low", "high"))
    if not low < high or (table.get("log") and low <= 0):
        raise LabError(where, f"{low:g} to {high:g} is no range", "low below high, above 0 for log")
    if not table.get("why"):
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
        unit=str(table.get("unit", "")),
        why=str(table["why"]),
        log=bool(table.get("log", False)),
        whole=bool(table.get("whole", False)),
        plain=bool(table.get("plain", False)),
    )


def _target(where: str, text: Any) -> Target:
    place, _, path = str(text).partition(":")
    if place not in PLACES or not re.fullmatch(r"[^.\s]+(\.[^.\s]+)*", path):
        raise LabError(
            where, f"set = {text!r} is no place", "option:NAME, profile:PATH or workload:PATH"
        )
    return Target(place, tuple(path.split(".")))


def _number(where: str, table: Mapping[str, Any], key: str) -> float:
    found = table.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise LabError(f"{where}: {key}", f"is {found!r}", "A number, in the unit of 'unit'")
    return float(found)


def _row(path: Path, kind: str, table: Mapping[str, Any]) -> Row:
    name = str(table.get("name", "?"))
    where = f"{path}: {kind} '{name}'"
    toml.known(where, table, ROW)
    needed = ("name", "run", "of", "value") + (("paper",) if kind == "baseline" else ())
    for key in needed:
        if key not in table:
            raise LabError(where, f"'{key}' is not stated", "docs/lab.md has an example")
    values.check(f"{where}: value", str(table["value"]))
    paper = _number(where, table, "paper") if "paper" in table else None
    for key in ("uncertainty", "tolerance"):
        if paper is None and key in table:
            raise LabError(f"{where}: {key}", "stands without 'paper'", "State both or neither")
    return Row(
        name=name,
        source=str(table.get("source", "")),
        run=str(table["run"]),
        of=str(table["of"]),
        over=None if table.get("over") is None else str(table["over"]),
        value=str(table["value"]),
        paper=paper,
        uncertainty=_uncertainty(where, table, paper),
        unit=str(table.get("unit", "")),
        tolerance=_number(where, table, "tolerance") if "tolerance" in table else None,
    )


def _uncertainty(where: str, table: Mapping[str, Any], paper: float | None) -> float:
    stated = table.get("uncertainty", 0.0)
    if isinstance(stated, str):
        number = stated.removesuffix("%").strip()
        share = float(number) / 100 if re.fullmatch(r"\d+\.?\d*", number) else -1.0
        stated = abs(paper or 0.0) * share if stated.endswith("%") else -1.0
    if isinstance(stated, bool) or not isinstance(stated, int | float) or stated < 0:
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
    for row in found.predictions:
        if row.paper is not None and (row.tolerance is None or row.tolerance <= 0):
            raise LabError(
                f"{path}: prediction '{row}'",
                "'tolerance' is not stated",
                "State how wide it may be over the region and still count as identified",
            )
    names = [each.name for each in found.free]
    for free in found.free:
        if names.count(free.name) > 1:
            raise LabError(f"{path}: free.{free.name}", "is there twice", "One name for each")
    if found.predictions and not found.judged:
        raise LabError(f"{path}: policy", "is not stated", "Name the policy that is judged")


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
        if not row.uncertainty > 0:
            raise LabError(
                f"{where}: uncertainty", "is not stated", "Say how far off the number may be"
            )
    groups = {row.name if found.leave_out == "row" else row.source for row in found.baseline}
    if found.leave_out and len(groups) < 2:
        raise LabError(
            f"{found.path}: leave-out", "leaves no row to fit", "It takes two rows or sources"
        )
