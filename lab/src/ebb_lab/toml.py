"""TOML files that people write for the lab, and those that the lab writes for `ebb`."""

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

from ebb_lab.errors import LabError, did_you_mean


class Written(float):
    """A number that remembers how it was written."""

    text: str

    def __new__(cls, text: str) -> Self:
        found = super().__new__(cls, text)
        found.text = text
        return found


def rounding(number: Any) -> float:
    """Half of what the last digit of a number of a file counts; 0 of what is none."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return 0.0
    mantissa, _, exponent = getattr(number, "text", "0").lower().partition("e")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2].replace("_", "")))


def read(path: Path, what: str, keys: Collection[str]) -> tuple[str, dict[str, Any]]:
    """Text and table of a file; `what` such as 'A study'. Unknown keys are refused."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        table = tomllib.loads(text, parse_float=Written)
    except OSError as error:
        raise LabError(str(path), f"{error.strerror}", f"{what} is a TOML file") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LabError(str(path), str(error), f"{what} is a TOML file, see docs/lab.md") from error
    known(str(path), table, keys)
    return text, table


def known(where: str, table: Mapping[str, Any], keys: Collection[str]) -> None:
    """Refuses keys that mean nothing."""
    for key in table:
        if key not in keys:
            raise LabError(where, f"no key '{key}'", did_you_mean(key, keys))


def whole(where: str, table: Mapping[str, Any], key: str, default: int, least: int = 1) -> int:
    """A whole number from `least`."""
    number = table.get(key, default)
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise LabError(f"{where}: {key}", f"is {number!r}", f"A whole number from {least}")
    return number


def flag(where: str, table: Mapping[str, Any], key: str) -> bool:
    """True or false; false where it is not stated."""
    found = table.get(key, False)
    if not isinstance(found, bool):
        raise LabError(f"{where}: {key}", f"is {found!r}", "true or false")
    return found


def text(where: str, table: Mapping[str, Any], key: str, default: str = "") -> str:
    """A text."""
    found = table.get(key, default)
    if not isinstance(found, str):
        raise LabError(f"{where}: {key}", f"is {found!r}", "A text in quotation marks")
    return found


def value(value_: Any) -> str:
    """A value as TOML writes it, tables inline."""
    if isinstance(value_, bool):
        return str(value_).lower()
    if isinstance(value_, Mapping):
        pairs = ", ".join(f"{_key(name)} = {value(each)}" for name, each in value_.items())
        return f"{{ {pairs} }}"
    if isinstance(value_, list | tuple):
        return f"[{', '.join(map(value, value_))}]"
    if isinstance(value_, str):
        escaped = value_.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    return repr(value_)


def document(table: Mapping[str, Any], comments: Collection[str] = ()) -> str:
    """A whole file, with lines of comment at its top; tables have headings of their own."""
    lines = [f"# {line}" for line in comments]
    plain = {name: each for name, each in table.items() if not isinstance(each, Mapping)}
    lines += [f"{_key(name)} = {value(each)}" for name, each in plain.items()]
    for name, each in table.items():
        if isinstance(each, Mapping):
            lines += [f"[{_key(name)}]", *(f"{_key(k)} = {value(v)}" for k, v in each.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() else value(name)
