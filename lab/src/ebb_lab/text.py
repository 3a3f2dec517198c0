"""Numbers and tables as text for people."""

import json
import math
from collections.abc import Sequence
from typing import Any


def number(value: float | None, digits: int = 4) -> str:
    """With so many significant digits and no exponent where it is readable without."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if -4 <= size < 9:
        return f"{value:,.{max(0, digits - 1 - size)}f}"
    return f"{value:.{digits - 1}g}"


def print_json(value: Any) -> None:
    """Prints it for programs."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2))


def percent(share: float | None) -> str:
    """A change as +12.3 %."""
    return "–" if share is None else f"{share:+.1%}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side, the first to the left and the others to the right."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    told = []
    for line in lines:
        cells = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        told.append("  " + "  ".join(cells).rstrip())
    return "\n".join(told)


def duration(seconds: float) -> str:
    """Such as 42 s, 3 min 05 s or 2 h 07 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
