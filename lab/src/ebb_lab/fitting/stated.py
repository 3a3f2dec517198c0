"""Numbers that a study's text states, by their place in the `stated.toml` beside a declaration,
such as `fig-13/pacer`; `ebb paper` reads the same file (crates/ebb/src/paper/stated.rs)."""

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from ebb_lab import toml
from ebb_lab.errors import LabError, did_you_mean

#: The file, beside the declaration.
FILE = "stated.toml"


def resolved(path: Path, where: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """A declared row with the number and the figure that its `stated` names; others unchanged."""
    if "stated" not in row:
        return dict(row)
    if "paper" in row:
        raise LabError(f"{where}: paper", "stands beside 'stated'", "Leave one of them out")
    file, id_ = path.parent / FILE, toml.text(where, row, "stated")
    numbers = _read(file) if file.is_file() else {}
    found = numbers.get(id_, {})
    other = numbers.get(found.get("as", id_), {})
    if "paper" not in other:
        known = [name for name, each in numbers.items() if "paper" in each or "as" in each]
        raise LabError(
            f"{where}: stated", f"{file} has no number '{id_}'", did_you_mean(id_, known)
        )
    number = {"source": found["figure"], "paper": ratio(found["quantity"], other["paper"])}
    if "half" in other:
        share = 0.01 if ", %" in found["quantity"] else 1.0
        number["uncertainty"] = share * other["half"]
    return number | dict(row)


def ratio(quantity: str, number: float) -> float:
    """Percent as the ratio that remains, as written: 0.78 where 22 % are saved; others unchanged.

    The words that decide it are those of `Form::of` in crates/ebb/src/paper/verdict.rs."""
    if ", %" not in quantity:
        return number
    share = Decimal(getattr(number, "text", str(number))).scaleb(-2)
    if "share of" not in quantity:
        if " saved" in quantity or " below " in quantity:
            share = 1 - share
        elif " over " in quantity:
            share = 1 + share
    return toml.Written(str(share))


@cache
def _read(file: Path) -> dict[str, dict[str, Any]]:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"), parse_float=toml.Written)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LabError(str(file), str(error), "'stated' names a number of this file") from error
    return {
        f"{group}/{name}": {"figure": rows["figure"]} | row
        for group, rows in table.items()
        for name, row in rows.items()
        if isinstance(row, dict)
    }
