"""Cells of a measured table: numbers, units, and settings that are filled in from them.

A setting such as `rate = "{load (kIOPS)}k"` states a unit twice: in the column's name and after the
cell. Where both are known the number is converted from the one to the other; where they are of
different kinds, or one of them is missing that is needed, the line is refused. Units may stand

* in the cell, in the column's name, or in a second line of the table's heading;
* in the setting after the cell (`{load}k`, `{cap} W`) or before it (`ghz={clock}`), or be those of
  the option itself (`rate`, `block`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebb_lab import fields, tables
from ebb_lab.errors import LabError, did_you_mean
from ebb_lab.tables import Table

#: Cells without a number.
MISSING = ("", "-", "–", "—", "nan", "n/a", "na", "null", "none")
#: What empty cells of settings can mean.
EMPTY = ("above", "unset")
#: Units of options, and those that Ebb reads, of which the first has the factor 1.
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "MB", "GB", "TB")
_TIMES = ("s", "ms", "us")
OPTIONS = {
    "rate": (fields.SCALES["1/s"], ("IOPS", "kIOPS")),
    "block": (fields.SIZES, _SIZES),
    "data": (fields.SIZES, _SIZES),
    "ssd-budget": (fields.SCALES["W"], ("W",)),
    "duration": (fields.SCALES["s"], _TIMES),
    "warmup": (fields.SCALES["s"], _TIMES),
}
#: Units of places in profiles, likewise.
PLACES = (
    (fields.SCALES["W"], ("W",)),
    (fields.SCALES["µs"], ("us", "ms", "s")),
    (fields.SCALES["Hz"], ("Hz", "MHz", "GHz")),
    (fields.BYTES, _SIZES),
    (fields.SCALES["B/s"], ("B",)),
)
_KINDS = (*fields.SCALES.values(), fields.SIZES)
_CELL = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Quantity:
    """A cell's number with its unit, its place, and half of what its last digit counts."""

    number: float
    unit: str
    place: str
    rounding: float


class Cells:
    """A table's cells as text, and what is filled in from them."""

    def __init__(
        self,
        where: str,
        path: Path,
        decimal: str | None,
        empty: str | None,
        names: Mapping[str, str],
    ) -> None:
        self.where, self.path, self.decimal, self.empty = where, path, decimal, empty
        self.names = names
        self.table: Table = tables.read([path])

    def need(self, where: str, column: str) -> None:
        if column not in self.table.frame.columns:
            raise LabError(
                where,
                f"{self.path} has no column '{column}'",
                did_you_mean(column, self.table.frame.columns),
            )

    def unit(self, column: str) -> str:
        """The unit that the table states for a column, in a line of its own or in the name."""
        stated = self.table.units.get(column, "")
        return stated if stated != fields.unit(column) else fields.named_unit(column)

    def cell(self, column: str, line: int) -> str | None:
        """A cell with a point in its number; None where it is empty."""
        found = self.table.frame[column].iloc[line]
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        text = str(found).strip()
        if text.lower() in MISSING:
            return None
        # Spaces and apostrophes can only be those of thousands.
        if re.match(r"[-+]?\d{1,3}(['’\s]\d{3})+(?!\d)", text):
            text = re.sub(r"(?<=\d)['’\s](?=\d{3}(?!\d))", "", text)
        comma = re.search(r"\d,\d", text)
        if self.decimal is None and not comma:
            return text
        groups = "," if self.decimal == "." else "."
        plain = re.sub(rf"(?<=\d)[{groups}](?=\d{{3}}(?!\d))", "", text)
        if self.decimal is None or re.search(rf"\d[{groups}]\d", plain):
            stated = f"decimal = '{self.decimal}'" if self.decimal else "'decimal' is not stated"
            raise LabError(
                self.table.place(line),
                f"'{column}' is '{text}', and {stated}",
                f"State under [[measured]] of {self.where.partition(':')[0]} whether ',' or '.' "
                "is the decimal sign",
            )
        return plain.replace(",", ".")

    def quantity(self, column: str, line: int) -> Quantity | None:
        """What a cell says; None where it is empty."""
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
        told = re.match(r"\s*[-+]?\d*\.?(\d*)(?:[eE]([-+]?\d+))?", cell)
        digits = (len(told[1]) - int(told[2] or 0)) if told else 0
        return Quantity(*parsed, place, 0.5 * 10.0**-digits)

    def filled(self, key: str, text: Any, line: int) -> Any:
        """A text with the line's cells in it as they stand; None where one of them is empty."""
        return self._filled(key, text, line, "")

    def setting(self, key: str, text: Any, line: int) -> Any:
        """The same for an option, or a place in profile or workload, in the units that it takes."""
        return self._filled(f"set.{key}", text, line, key)

    def _filled(self, where: str, text: Any, line: int, key: str) -> Any:
        if not isinstance(text, str):
            return text
        told = ""
        end = 0
        for found in _CELL.finditer(text):
            term = _Term(self, f"{self.where}: {where}", found[1], line)
            if term.cell is None:
                return None
            before, after = text[: found.start()], text[found.end() :]
            told += text[end : found.start()]
            told += term.setting(key, before, after) if key else term.plain()
            end = found.end()
        return told + text[end:]

    def above(self, where: str, column: str, line: int) -> int:
        """The line whose cell counts in this line's setting."""
        frame = self.table.frame[column]
        while line >= 0 and isinstance(frame.iloc[line], str) and not frame.iloc[line].strip():
            if self.empty == "unset":
                break
            if self.empty is None or line == 0:
                raise LabError(
                    self.table.place(line),
                    f"'{column}' is empty, and {where} takes it",
                    "Write '-' where this was not set, or state empty = 'above' (merged cells) or "
                    "'unset' under [[measured]]",
                )
            line -= 1
        return line


class _Term:
    """A column's cell in a setting, or that times or by a number: `Cores / 8`."""

    def __init__(self, cells: Cells, where: str, text: str, line: int) -> None:
        self.cells, self.where, self.text = cells, where, text
        self.column, self.sign, factor = text, "", ""
        scaled = re.fullmatch(r"(.*\S)\s+([*/])\s+([\d.]+(?:e[-+]?\d+)?)", text)
        if text not in cells.table.frame.columns and scaled:
            self.column, self.sign, factor = scaled.groups()
        cells.need(where, self.column)
        self.line = cells.above(where, self.column, line)
        cell = cells.cell(self.column, self.line)
        self.cell = cells.names.get(cell, cell) if cell else None
        self.times = float(factor or 1)
        if self.sign == "/" and self.times:
            self.times = 1 / self.times
        if self.sign and (self.times == 0 or (self.cell and not fields.quantity(self.cell))):
            raise self.error(f"is '{self.cell}', no number for {text}", "Correct it")

    def error(self, what: str, remedy: str) -> LabError:
        place = self.cells.table.place(self.line)
        return LabError(place, f"'{self.column}' {what} ({self.where})", remedy)

    def plain(self) -> str:
        """As it stands, or its number where it is multiplied."""
        parsed = fields.quantity(self.cell or "")
        return f"{parsed[0] * self.times:.12g}" if parsed and self.sign else self.cell or ""

    def setting(self, key: str, before: str, after: str) -> str:
        """In the unit that the setting states or takes."""
        parsed = fields.quantity(self.cell or "")
        own = parsed[1] if parsed else ""
        unit = own or self.cells.unit(self.column)
        wanted = _stated(before, after)
        if parsed is None:
            if wanted:
                raise self.error(f"is '{self.cell}', no number in {wanted}", "Correct it")
            return self.cell or ""
        if own and not fields.is_unit(own) and fields.factor(fields.SIZES, own) is None:
            return self.plain()  # as in `2-way`: no quantity
        alone = not before.strip() and not after.strip()
        if alone and ":" in key and not wanted:
            wanted = _unit_of(re.split(r"[:.]", key)[-1])
        if wanted:
            return f"{self.converted(parsed[0], unit, wanted):.12g}"
        if alone and key in OPTIONS:
            told = self.written(parsed[0], unit, *OPTIONS[key])
            if told is None:
                base = OPTIONS[key][1][0]
                raise self.error(
                    f"is in {unit or 'no unit'}, and {key} is in {base}",
                    f"State its unit after it, such as {key} = '{{{self.text}}} {base}'",
                )
            return told
        if alone and ":" in key and unit:
            for kind, names in PLACES:
                if told := self.written(parsed[0], unit, kind, names):
                    return told
        # Percent are a share where nothing says otherwise.
        share = fields.factor(fields.SCALES[""], unit) if unit and not self.sign else None
        return f"{parsed[0] * self.times * (share or 1.0):.12g}"

    def written(
        self, number: float, unit: str, kind: Mapping[str, float], names: Sequence[str]
    ) -> str | None:
        """The number with a unit that Ebb reads: its own where it can be."""
        if unit in names:
            return f"{number * self.times:.12g} {unit}"
        factor = fields.factor(kind, unit) if unit else None
        return None if factor is None else f"{number * self.times * factor:.12g} {names[0]}"

    def converted(self, number: float, unit: str, wanted: str) -> float:
        """The number in the unit that the setting states."""
        if not unit or (not fields.is_unit(unit) and fields.factor(fields.SIZES, unit) is None):
            return number * self.times
        for kind in _KINDS:
            have, want = fields.factor(kind, unit), fields.factor(kind, wanted)
            if have is None or want is None:
                continue
            ratio = have / want
            if not self.sign:
                return number * ratio
            # Whoever converts by hand has done it already; other factors leave the unit.
            if ratio != 1 and abs(self.times / ratio - 1) > 1e-9:
                raise self.error(
                    f"is in {unit}, and '{{{self.text}}}' in {wanted}",
                    f"State the unit of {self.column} after it: it is converted by itself",
                )
            return number * self.times
        raise self.error(
            f"is in {unit}, and the setting in {wanted}", "Name another column, or correct the unit"
        )


def _stated(before: str, after: str) -> str:
    """The unit that a setting states after a cell or, as `ghz=`, before it; or none."""
    word = re.match(r"\s*([A-Za-zµ\u03bc%°][\w/%°]*)", after)
    if word and (fields.is_unit(word[1]) or word[1] in fields.SIZES):
        return word[1]
    name = re.search(r"(\w{2,})\s*=\s*$", before)
    return _unit_of(name[1]) if name else ""


def _unit_of(name: str) -> str:
    """The unit that ends the name of a parameter, such as `ghz` or `iops`; or none."""
    last = name.rpartition("_")[2]
    return last if len(last) > 1 and fields.is_unit(last) else ""
