"""Measurements from files: CSV, Parquet, JSON lines, and what `ebb sim --json` prints.

A table keeps the place of each row (file and line) and the unit of each column, so that errors can
name them. Nothing is dropped or filled in: what is no number is an error of whoever asks for it.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebb_lab import fields
from ebb_lab.errors import LabError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

_SPACE = re.compile(r"\s*")


@dataclass
class Table:
    """Rows of one or more files. `places` has, for each row, where it stands."""

    name: str
    frame: pd.DataFrame
    units: dict[str, str]
    places: list[str]

    def need(self, column: str) -> None:
        """`LabError` where there is no such column."""
        if column not in self.frame.columns:
            raise LabError(
                self.name, f"no column '{column}'", did_you_mean(column, self.frame.columns)
            )

    def place(self, row: int) -> str:
        """Where the row with this index label stands: file and line."""
        return self.places[row]


def read(paths: Iterable[Path]) -> Table:
    """The rows of all files, one below the other; the files must agree about units."""
    tables = [_read_one(path) for path in paths]
    known: dict[str, tuple[str, str]] = {}
    for table in tables:
        for column, unit in table.units.items():
            other = known.setdefault(column, (unit, table.name))
            if unit != other[0]:
                raise LabError(
                    table.name,
                    f"column '{column}' is in {unit or 'no unit'}, in {other[1]} it is in "
                    f"{other[0] or 'no unit'}",
                    "Convert one of them",
                )
    import pandas as pd

    frame = pd.concat([table.frame for table in tables], ignore_index=True, sort=False)
    return Table(
        name=", ".join(table.name for table in tables),
        frame=frame,
        units={column: unit for column, (unit, _) in known.items()},
        places=[place for table in tables for place in table.places],
    )


def numbers(table: Table, column: str, rows: pd.Index, where: str) -> tuple[list[float], str]:
    """The numbers of a column in these rows, and their unit; an error for anything else."""
    import pandas as pd

    found: list[float] = []
    seen: dict[str, str] = {}
    for row, cell in zip(rows, table.frame.loc[rows, column], strict=True):
        place = table.place(int(row))
        if cell == "" or pd.isna(cell):
            raise LabError(
                f"{place}, {where}",
                f"'{column}' has no value",
                "Repeat the run, or leave the row out knowingly with --where",
            )
        parsed = fields.quantity(str(cell))
        if parsed is None:
            raise LabError(
                f"{place}, {where}",
                f"'{column}' is '{cell}', which is no finite number",
                "Correct it, or name another --value",
            )
        found.append(parsed[0])
        seen.setdefault(parsed[1], place)
    unit_column = next((c for c in (f"{column}_unit", "unit") if c in table.frame.columns), None)
    if unit_column:
        for row, cell in zip(rows, table.frame.loc[rows, unit_column], strict=True):
            seen.setdefault(str(cell), table.place(int(row)))
        seen.pop("", None)
    if len(seen) > 1:
        told = ", ".join(f"{unit or 'none'} ({place})" for unit, place in seen.items())
        raise LabError(
            where, f"'{column}' mixes units: {told}", "Convert them to one unit, or use --where"
        )
    stated = next(iter(seen), "")
    return found, stated or table.units.get(column, "")


def _read_one(path: Path) -> Table:
    if path.is_dir():
        path = path / fields.DATASET
    try:
        if path.suffix == ".parquet":
            return _parquet(path)
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        # Spreadsheets' "Unicode text" is UTF-16, which begins with a mark.
        wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise LabError(f"{path}:{line}", f"cannot be read: {error}", "Save it as UTF-8") from error
    except (OSError, EOFError) as error:
        raise _unreadable(path, error) from error
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if kind in (".json", ".jsonl", ".ndjson"):
        return _json(path, text)
    if kind in (".csv", ".tsv"):
        return _csv(path, text)
    raise LabError(
        str(path),
        f"files that end in '{kind}' are not known",
        "Name it .csv, .tsv, .parquet, .json or .jsonl (all but Parquet also with .gz)",
    )


def _unreadable(path: Path, error: Exception) -> LabError:
    return LabError(str(path), f"cannot be read: {error}", "Check name and format")


def _parquet(path: Path) -> Table:
    path.open("rb").close()
    import pyarrow
    import pyarrow.parquet

    try:
        found = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowException as error:
        raise _unreadable(path, error) from error
    stated = {}
    for field in found.schema:
        unit = (field.metadata or {}).get(b"unit")
        stated[field.name] = unit.decode() if unit is not None else fields.unit(field.name)
    frame = found.to_pandas()
    return Table(str(path), frame, stated, [f"{path} row {n}" for n in range(1, len(frame) + 1)])


def _csv(path: Path, text: str) -> Table:
    rows = csv.reader(io.StringIO(text), delimiter=_delimiter(text), strict=True)
    header: list[str] = []
    head = 1
    units: dict[str, str] = {}
    records: list[list[str]] = []
    places: list[str] = []
    try:
        for cells in rows:
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                if not cells[0].startswith("#"):
                    header, head = [field.strip() for field in cells], rows.line_num
                continue
            while len(cells) > len(header) and not cells[-1].strip():
                cells.pop()
            if not records and not units and (units := _units(header, cells)):
                continue
            if len(cells) != len(header):
                raise LabError(
                    f"{path}:{rows.line_num}",
                    f"{len(cells)} fields, but the header has {len(header)}",
                    "Correct the line",
                )
            records.append(cells)
            places.append(f"{path}:{rows.line_num}")
    except csv.Error as error:
        raise LabError(f"{path}:{rows.line_num}", str(error), "Correct the line") from error
    _check_header(f"{path}:{head}", header, records)
    if not records:
        raise LabError(str(path), "there are no rows", "A CSV file has a header and rows")
    import pandas as pd

    frame = pd.DataFrame(records, columns=header, dtype=object)
    frame = frame.loc[:, [bool(name) for name in header]]
    stated = {name: units.get(name) or fields.unit(name) for name in header if name}
    return Table(str(path), frame, stated, places)


def _check_header(where: str, header: list[str], records: list[list[str]]) -> None:
    """Columns that spreadsheets leave behind have neither name nor cells; all others have a name
    of their own."""
    for index, name in enumerate(header):
        if not name and any(cells[index].strip() for cells in records):
            raise LabError(
                where,
                f"column {index + 1} has cells and no name",
                "Name it, or begin lines above the heading with #",
            )
    twice = [name for name, count in Counter(header).items() if name and count > 1]
    if twice:
        raise LabError(where, f"column '{twice[0]}' is there twice", "Rename one of them")


def _units(header: list[str], cells: list[str]) -> dict[str, str]:
    """The columns' units where a second line of the heading has these and nothing else."""
    told = {name: cell.strip(" ()[]") for name, cell in zip(header, cells, strict=False)}
    named = {name: unit for name, unit in told.items() if fields.is_unit(unit)}
    others = [unit for name, unit in told.items() if name not in named]
    return named if all(unit in ("", "-", "–", "—") for unit in others) else {}


def _delimiter(text: str) -> str:
    """What divides the header into most fields; spreadsheets of many countries write semicolons."""
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    header = list(itertools.islice(lines, 1))

    def fields_of(delimiter: str) -> int:
        return len(next(csv.reader(header, delimiter=delimiter), []))

    return max(",;\t", key=fields_of)


def _json(path: Path, text: str) -> Table:
    records: list[dict[str, Any]] = []
    places: list[str] = []
    for line, value in _documents(path, text):
        if not isinstance(value, dict):
            raise LabError(f"{path}:{line}", "not a JSON object", "One object per line")
        for record in _rows(value):
            records.append(record)
            places.append(f"{path}:{line}")
    if not records:
        raise LabError(str(path), "there are no rows", "One JSON object per line")
    import pandas as pd

    frame = pd.DataFrame.from_records(records).astype(object)
    return Table(str(path), frame, {name: fields.unit(name) for name in frame.columns}, places)


def _rows(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row per run where `value` is what `ebb sim --json` prints, otherwise itself."""
    runs = value.get("runs")
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        yield fields.flatten(value)
        return
    common = {k: v for k, v in value.items() if k not in ("runs", "verdicts", "experiment")}
    for run in runs:
        yield fields.flatten(common) | fields.flatten(run)


def _documents(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """JSON values one after the other, on lines of their own or over several, with their line."""

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is no JSON number")

    decoder = json.JSONDecoder(parse_constant=refuse)
    at = 0
    line = 1
    while True:
        start = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        line += text.count("\n", at, start)
        if start == len(text):
            return
        try:
            value, at = decoder.raw_decode(text, start)
        except ValueError as error:
            message = str(error)
            if isinstance(error, json.JSONDecodeError):
                message, line = error.msg, error.lineno
            raise LabError(
                f"{path}:{line}", f"not JSON: {message}", "One JSON object per line"
            ) from error
        yield line, value
        line += text.count("\n", start, at)
