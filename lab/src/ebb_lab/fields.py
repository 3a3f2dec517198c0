"""Fields of results as columns: names of nested ones, the units that names state, quantities."""

import re
from collections.abc import Mapping
from typing import Any

from ebb_lab.errors import LabError

#: The dataset in a folder that `ebb-lab run` wrote.
DATASET = "dataset.parquet"

#: Words that stand in a field's name for its unit (docs/cli.md), the longer ones first.
WORDS = {
    "bytes_per_joule": "B/J",
    "bytes_per_second": "B/s",
    "iops_per_watt": "1/J",
    "kwh_per_year": "kWh/a",
    "celsius": "°C",
    "joules": "J",
    "seconds": "s",
    "watts": "W",
    "bytes": "B",
    "iops": "1/s",
    "us": "µs",
    "s": "s",
}

#: Factors of units in which quantities are written (docs/cli.md).
BYTES = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}
BYTES |= {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40, "PiB": 2.0**50}
MICROSECONDS = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}

#: Units in which people state values of these fields, by the field's own; "" is a plain number.
_US = MICROSECONDS | {"ns": 1e-3, "min": 6e7, "h": 3.6e9}
#: With capitals alone: `mb/s` may be either.
_BITS = {"kbit": 125.0, "Kb": 125.0, "Mbit": 125e3, "Mb": 125e3, "Gbit": 125e6, "Gb": 125e6}
_THOUSANDS = {"k": 1e3, "M": 1e6}
SCALES: dict[str, dict[str, float]] = {
    "W": {"W": 1.0, "mW": 1e-3, "kW": 1e3, "MW": 1e6},
    "J": {"J": 1.0, "mJ": 1e-3, "kJ": 1e3, "MJ": 1e6, "Wh": 3.6e3, "kWh": 3.6e6},
    "µs": _US,
    "s": {name: factor / 1e6 for name, factor in _US.items()},
    "B": BYTES,
    "B/s": {f"{name}/s": factor for name, factor in (BYTES | _BITS).items()},
    "B/J": {f"{name}/J": factor for name, factor in BYTES.items()},
    "1/s": _THOUSANDS
    | {"1/s": 1.0, "IOPS": 1.0, "kIOPS": 1e3, "MIOPS": 1e6}
    # As people name what there is so much of in a second.
    | {
        f"{prefix}{what}/s": factor
        for what in ("op", "ops", "IO", "IOs", "req", "requests")
        for prefix, factor in {"": 1.0, **_THOUSANDS}.items()
    },
    "1/J": {"1/J": 1.0, "IOPS/W": 1.0, "kIOPS/W": 1e3},
    "°C": {"°C": 1.0, "C": 1.0},
    "Hz": {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9},
    "": {"%": 0.01},
}
#: Sizes of requests: fio's k is a KiB.
SIZES = BYTES | {"k": 2.0**10, "M": 2.0**20, "G": 2.0**30}

#: Other spellings, as they are replaced one after the other.
_SPELLINGS = tuple(
    (re.compile(pattern, re.IGNORECASE), instead)
    for pattern, instead in (
        (r"\s*(/|\bper\b)\s*", "/"),
        (r"/(sec|second)\b", "/s"),
        (r"(?<=[bt])ps\b", "/s"),
        (r"(?<!i)ops\b(?!/)", "ops/s"),
        (r"\bwatts?\b", "W"),
        (r"\bbytes?\b", "B"),
        (r"\b(seconds?|secs?)\b", "s"),
        (r"\b(milliseconds?|msecs?)\b", "ms"),
        (r"\b(microseconds?|(µ|u)secs?)\b", "us"),
        (r"\bpercent\b", "%"),
        (r"\bthousands?\b", "k"),
        (r"(?<=\b[km])\s+(?=\w)", ""),
    )
)
_TIMES = (
    r"(?:10\s?\^\s?(?P<power{0}>\d)|10(?P<raised{0}>[³⁶])|(?P<plain{0}>1(?:[ ,.']?000)+|1e[36]))"
)
_MULTIPLE = re.compile(
    rf"{_TIMES.format(1)}\s*[x×*]?\s*(?P<before>[^\d].*)|(?P<after>.*?)\s*[x×*]\s*{_TIMES.format(2)}"
)

_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\d\s.,'].*?)?\s*")


def unit(name: str) -> str:
    """The unit that a field's name states, such as W for `mean_watts` and µs for
    `latency_us_p99`; empty where it states none."""
    for word, stated in WORDS.items():
        if re.search(rf"(?:^|_){word}(?:_|$)", name):
            return stated
    return ""


def factor(kind: Mapping[str, float], text: str) -> float | None:
    """What one of this unit is in that whose factor is 1, in any spelling that can be only one of
    the kind's: such as 1,000 for `KIOPS`, `1000 IOPS`, `IOPS×1000`, `k ops/sec`. Else None."""
    text = " ".join(text.replace("\u03bc", "\u00b5").split())
    if text in kind:
        return kind[text]
    multiple = _MULTIPLE.fullmatch(text)
    if multiple:
        told = multiple.groupdict()
        power = told["power1"] or told["power2"]
        raised = told["raised1"] or told["raised2"]
        plain = told["plain1"] or told["plain2"] or "1"
        if power or raised:
            times = 10.0 ** int(power or {"³": 3, "⁶": 6}[raised or "³"])
        else:
            times = float(re.sub(r"[ ,.']", "", plain))
        # Without a unit it is the value's own, which has one name.
        rest = factor(kind, told["before"] or told["after"] or "1/s")
        return None if rest is None else times * rest
    for pattern, instead in _SPELLINGS:
        text = pattern.sub(instead, text)
    if text in kind:
        return kind[text]
    found = {each for name, each in kind.items() if name.lower() == text.lower()}
    return found.pop() if len(found) == 1 else None


def named_unit(name: str) -> str:
    """The unit that a column's name states: in brackets, as fields do, or as its last word; or
    none. What stands in brackets counts as one even if it is not known."""
    bracketed = re.search(r"[(\[]\s*([^()\[\]]+?)\s*[)\]]\s*$", name)
    inside = bracketed[1] if bracketed else name
    words = [re.split(parts, inside)[-1] for parts in (r"[,;:]\s*", r"[\s_]+", r"\s*/\s*")]
    for word in (inside, "/".join(inside.split("_")[-2:]), *words):
        if is_unit(word) and (bracketed or word not in _WORDS_TOO):
            return word
    return bracketed[1] if bracketed else unit(name)


#: Units that are words or letters of other meaning where no brackets say so.
_WORDS_TOO = ("min", "h", "s", "S", "B", "b", "C", "c", "J", "j", "k", "K", "M", "m", "G", "g")


def is_unit(text: str) -> bool:
    """Whether some kind of value has this unit."""
    return any(factor(kind, text) is not None for kind in SCALES.values())


def quantity(text: str) -> tuple[float, str] | None:
    """Number and unit of a cell such as `12.5` or `12.5 W`; None where it is neither."""
    found = _QUANTITY.fullmatch(text)
    if not found:
        return None
    return float(found[1]), found[2] or ""


def scaled(text: str, factors: Mapping[str, float], where: str) -> float:
    """A quantity in the unit whose factor is 1, such as 10,000 for `10 ms` in microseconds."""
    found = quantity(text)
    if not found or found[1] not in factors or found[0] < 0:
        units = ", ".join(unit or "a plain number" for unit in factors)
        raise LabError(where, f"'{text}' is no such quantity", f"Units: {units}")
    return found[0] * factors[found[1]]


def flatten(result: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested objects as one row: `latency_us.p99` becomes `latency_us_p99`. Lists by class get
    the class into the name; other lists are left out, since a row has no room for them."""
    row: dict[str, Any] = {}
    for key, value in result.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            row |= flatten(value, f"{name}_")
        elif isinstance(value, list):
            for each in value:
                if name == "classes" and isinstance(each, dict):
                    inner = {k: v for k, v in each.items() if k != "class"}
                    row |= flatten(inner, f"{each.get('class')}_")
        else:
            row[name] = value
    return row
