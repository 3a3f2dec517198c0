"""Rows of a fit from a table that somebody measured, one setting of the server on each line.

[[measured]]
file = "measured.csv"         # or TSV, Parquet, JSON lines; beside the declaration
held-out = "held-out.csv"     # with the same columns: only predicted
decimal = ","                 # where numbers have commas
source = "{Block (KiB)}"      # what is left out together; without it each setting

[measured.set]                # what a line ran with: options, places of profile or workload
rate = "{Target (kIOPS)}k"
policy = "constant(cores={Cores / 8})"
"profile:cpu.power_limit" = "{Cap (W)} W"

[[measured.values]]
column = "p99 (ms)"
value = "latency_us_p99"
uncertainty = "10%"

A line without a number in a column of `set` leaves that setting out, one without it in a column of
`values` that value. Lines of the same settings are repeats: their mean counts.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebb_lab import fields, tables, toml
from ebb_lab.errors import LabError, did_you_mean
from ebb_lab.fitting import values
from ebb_lab.tables import Table

KEYS = ("file", "held-out", "decimal", "source", "set", "values")
VALUE = ("name", "column", "value", "uncertainty", "unit")
#: Cells without a number.
MISSING = ("", "-", "–", "—", "nan", "n/a", "na", "null", "none")


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
        for key in ("file", "held-out"):
            if key in each:
                yield _read(where, path.parent / toml.text(where, each, key), each, key != "file")


def _read(where: str, path: Path, stated: Mapping[str, Any], prediction: bool) -> Measured:
    reader = _Reader(where, path, stated.get("decimal"))
    settings = stated["set"]
    if not isinstance(settings, dict):
        raise LabError(f"{where}: set", "is no table", "Write [measured.set]")
    runs: dict[str, dict[str, Any]] = {}
    lines: dict[str, list[int]] = {}
    for line in range(len(reader.table.frame)):
        found = {key: reader.filled(f"set.{key}", text, line) for key, text in settings.items()}
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
    reader: "_Reader", stated: Mapping[str, Any], run: str, lines: list[int], source: Any
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
    cells = [found for line in lines if (found := reader.quantity(column, line)) is not None]
    if not cells:
        return None
    bare = unit  # of cells without one
    unit = unit or next((own for _, own, _ in cells if own), "")
    if not unit and values.unit(value):
        raise LabError(
            f"{where}: {column}: unit", "is not stated", f"'{value}' is in {values.unit(value)}"
        )
    numbers = []
    for number, stands, place in cells:
        at, own = f"{place}: '{column}'", stands or bare
        if own != unit and not (own and values.unit(value)):
            raise LabError(at, f"is in {own or 'no unit'}, and not in {unit}", "State 'unit'")
        numbers.append(number * values.scale(at, value, own) / values.scale(at, value, unit))
    mean = sum(numbers) / len(numbers)
    label = stated.get("name", re.sub(r"\s*[(\[].*[)\]]\s*$", "", column))
    return {
        "column": column,
        "place": cells[0][2],
        "name": f"{label}, {run}",
        "source": str(reader.filled("source", source, lines[0]) or run),
        "run": run,
        "value": value,
        "paper": float(f"{mean:.6g}"),
        "uncertainty": stated["uncertainty"],
        # Repeats say themselves how far off one of them may be.
        "spread": (max(numbers) - min(numbers)) / 2,
        "unit": unit,
    }


def _number(text: Any) -> Any:
    """What stands in a file: a number where the text is one."""
    if not isinstance(text, str) or not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", text):
        return text
    return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)


class _Reader:
    """Cells of a table as text, and what is filled in from them."""

    def __init__(self, where: str, path: Path, decimal: str | None) -> None:
        self.where, self.path, self.decimal = where, path, decimal
        self.table: Table = tables.read([path])

    def need(self, where: str, column: str) -> None:
        if column not in self.table.frame.columns:
            raise LabError(
                where,
                f"{self.path} has no column '{column}'",
                did_you_mean(column, self.table.frame.columns),
            )

    def unit(self, column: str) -> str:
        """The unit that a column's name states, in brackets or as fields do; or none."""
        bracketed = re.search(r"[(\[]\s*([^()\[\]]+?)\s*[)\]]\s*$", column)
        return bracketed[1] if bracketed else self.table.units.get(column, "")

    def cell(self, column: str, line: int) -> str | None:
        """A cell with a point in its number; None where it is empty."""
        found = self.table.frame[column].iloc[line]
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        text = str(found).strip()
        if text.lower() in MISSING:
            return None
        comma = re.search(r"\d,\d", text)
        if self.decimal is None and not comma:
            return text
        groups = "," if self.decimal == "." else "."
        plain = re.sub(rf"(?<=\d)[{groups}'\s](?=\d{{3}}(?!\d))", "", text)
        if self.decimal is None or re.search(rf"\d[{groups}]\d", plain):
            stated = f"decimal = '{self.decimal}'" if self.decimal else "'decimal' is not stated"
            raise LabError(
                self.table.place(line),
                f"'{column}' is '{text}', and {stated}",
                f"State under [[measured]] of {self.where.partition(':')[0]} whether ',' or '.' "
                "is the decimal sign",
            )
        return plain.replace(",", ".")

    def quantity(self, column: str, line: int) -> tuple[float, str, str] | None:
        """Number, unit and place of a cell; None where it is empty."""
        cell, place = self.cell(column, line), self.table.place(line)
        if cell is None:
            return None
        parsed = fields.quantity(cell)
        if parsed is None:
            raise LabError(
                place,
                f"'{column}' is '{cell}', which is no finite number",
                "Correct it, or leave the cell empty",
            )
        return *parsed, place

    def filled(self, key: str, text: Any, line: int) -> Any:
        """A setting with the line's cells in it; None where one of them is empty."""
        if not isinstance(text, str):
            return text
        missing = False

        def fill(found: re.Match[str]) -> str:
            nonlocal missing
            told = self._term(f"{self.where}: {key}", found[1], line)
            missing |= told is None
            return told or ""

        filled = re.sub(r"\{([^{}]*)\}", fill, text)
        return None if missing else filled

    def _term(self, where: str, text: str, line: int) -> str | None:
        """A column's cell, or that times or by a number: `Cores / 8`."""
        column, sign, factor = text, "", ""
        scaled = re.fullmatch(r"(.*\S)\s+([*/])\s+([\d.]+(?:e[-+]?\d+)?)", text)
        if text not in self.table.frame.columns and scaled:
            column, sign, factor = scaled.groups()
        self.need(where, column)
        cell = self.cell(column, line)
        if cell is None or not sign:
            return cell
        parsed = fields.quantity(cell)
        if parsed is None or float(factor) == 0:
            raise LabError(
                self.table.place(line),
                f"'{column}' is '{cell}', no number for {text}",
                "Correct it",
            )
        result = parsed[0] * float(factor) if sign == "*" else parsed[0] / float(factor)
        return f"{result:.12g}"
