"""Rows of a fit from a table that somebody measured, one setting of the server on each line.

[[measured]]
file = "measured.csv"         # or TSV, Parquet, JSON lines; beside the declaration
held-out = "held-out.csv"     # with the same columns: only predicted
decimal = ","                 # where numbers have commas
empty = "above"               # merged cells: settings are those of the line above; or "unset"
names = { schedutil = "ondemand" } # cells of settings by other names
source = "{Block (KiB)}"      # what is left out together; without it each setting

[measured.set]                # what a line ran with: options, places of profile or workload
rate = "{Target (kIOPS)}"
policy = "constant(cores={Cores / 8})"
"profile:cpu.power_limit" = "{Cap (W)} W"

[[measured.values]]
column = "p99 (ms)"
value = "latency_us_p99"
uncertainty = "10%"

A line with `-` in a column of `set` leaves that setting out, one with that or nothing in a column
of `values` that value. Lines of the same settings are repeats: their mean counts.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebb_lab import toml
from ebb_lab.errors import LabError
from ebb_lab.fitting import cells, values
from ebb_lab.fitting.cells import Cells

KEYS = ("file", "held-out", "decimal", "empty", "names", "source", "set", "values")
VALUE = ("name", "column", "value", "uncertainty", "unit")


@dataclass(frozen=True)
class Measured:
    """What a table adds to a declaration."""

    path: Path
    prediction: bool
    #: Settings of each run, by its name.
    runs: dict[str, dict[str, Any]]
    #: As they would stand under `[[baseline]]` or `[[prediction]]`, but for `of`.
    rows: tuple[dict[str, Any], ...]


def read(path: Path, stated: list[dict[str, Any]]) -> Iterator[Measured]:
    """The tables of a declaration."""
    for number, each in enumerate(stated, 1):
        where = f"{path}: measured {number}"
        toml.known(where, each, KEYS)
        for key in ("file", "set", "values"):
            if not each.get(key):
                raise LabError(where, f"'{key}' is not stated", "docs/profiles.md has an example")
        if each.get("decimal") not in (None, ",", "."):
            raise LabError(f"{where}: decimal", f"is {each['decimal']!r}", "',' or '.'")
        if each.get("empty") not in (None, *cells.EMPTY):
            raise LabError(f"{where}: empty", f"is {each['empty']!r}", "'above' or 'unset'")
        names = each.get("names", {})
        if not isinstance(names, dict) or not all(isinstance(v, str) for v in names.values()):
            raise LabError(f"{where}: names", "is no table of texts", 'Such as { old = "new" }')
        for key in ("file", "held-out"):
            if key in each:
                yield _read(where, path.parent / toml.text(where, each, key), each, key != "file")


def _read(where: str, path: Path, stated: Mapping[str, Any], prediction: bool) -> Measured:
    reader = Cells(where, path, stated.get("decimal"), stated.get("empty"), stated.get("names", {}))
    settings = stated["set"]
    if not isinstance(settings, dict):
        raise LabError(f"{where}: set", "is no table", "Write [measured.set]")
    runs: dict[str, dict[str, Any]] = {}
    lines: dict[str, list[int]] = {}
    for line in range(len(reader.table.frame)):
        found = {key: reader.setting(key, text, line) for key, text in settings.items()}
        run = {
            key: _number(value) if ":" in key else value
            for key, value in found.items()
            if value is not None
        }
        name = ", ".join(f"{key}={run[key]}" for key in run if "{" in str(settings[key]))
        runs[name or reader.path.stem] = run
        lines.setdefault(name or reader.path.stem, []).append(line)
    columns = stated["values"]
    if not isinstance(columns, list) or not all(isinstance(each, dict) for each in columns):
        raise LabError(f"{where}: values", "is no list of tables", "Write [[measured.values]]")
    rows = [
        row
        for name, own in lines.items()
        for each in columns
        if (row := _row(reader, each, name, own, stated.get("source"))) is not None
    ]
    for each in columns:
        if not prediction and not any(row["column"] == each["column"] for row in rows):
            raise LabError(
                f"{reader.path}", f"column '{each['column']}' has no number", "Leave it out"
            )
    used = {row["run"] for row in rows}
    return Measured(
        path=reader.path,
        prediction=prediction,
        runs={name: run for name, run in runs.items() if name in used},
        rows=tuple({k: v for k, v in row.items() if k != "column"} for row in rows),
    )


def _row(
    reader: Cells, stated: Mapping[str, Any], run: str, lines: list[int], source: Any
) -> dict[str, Any] | None:
    """The row of one column and one setting; None where it was not measured."""
    where = f"{reader.where}: values"
    toml.known(where, stated, VALUE)
    for key in ("column", "value", "uncertainty"):
        if key not in stated:
            raise LabError(where, f"'{key}' is not stated", "docs/profiles.md has an example")
    column, value = str(stated["column"]), str(stated["value"])
    reader.need(f"{where}: column", column)
    values.check(f"{where}: {column}: value", value)
    unit = toml.text(f"{where}: {column}", stated, "unit", reader.unit(column))
    found = [each for line in lines if (each := reader.quantity(column, line)) is not None]
    if not found:
        return None
    bare = unit  # of cells without one
    unit = unit or next((each.unit for each in found if each.unit), "")
    if not unit and values.unit(value):
        raise LabError(
            f"{where}: {column}: unit", "is not stated", f"'{value}' is in {values.unit(value)}"
        )
    numbers, rounding = [], 0.0
    for each in found:
        at, own = f"{each.place}: '{column}'", each.unit or bare
        if own != unit and not (own and values.unit(value)):
            raise LabError(at, f"is in {own or 'no unit'}, and not in {unit}", "State 'unit'")
        factor = values.scale(at, value, own) / values.scale(at, value, unit)
        numbers.append(each.number * factor)
        rounding = max(rounding, each.rounding * factor)
    mean = sum(numbers) / len(numbers)
    label = stated.get("name", re.sub(r"\s*[(\[].*[)\]]\s*$", "", column))
    return {
        "column": column,
        "place": found[0].place,
        "name": f"{label}, {run}",
        "source": str(reader.filled("source", source, lines[0]) or run),
        "run": run,
        "value": value,
        "paper": float(f"{mean:.6g}"),
        "uncertainty": stated["uncertainty"],
        # Repeats say themselves how far off one of them may be.
        "spread": (max(numbers) - min(numbers)) / 2,
        "rounding": rounding,
        "unit": unit,
    }


def _number(text: Any) -> Any:
    """What stands in a file: a number where the text is one."""
    if not isinstance(text, str) or not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", text):
        return text
    return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
