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

#: Units in which people state values of these fields, by the field's own.
_US = MICROSECONDS | {"ns": 1e-3, "min": 6e7, "h": 3.6e9}
SCALES: dict[str, dict[str, float]] = {
    "W": {"W": 1.0, "mW": 1e-3, "kW": 1e3},
    "J": {"J": 1.0, "mJ": 1e-3, "kJ": 1e3, "Wh": 3.6e3, "kWh": 3.6e6},
    "µs": _US,
    "s": {name: factor / 1e6 for name, factor in _US.items()},
    "B": BYTES,
    "B/s": {f"{name}/s": factor for name, factor in BYTES.items()},
    "B/J": {f"{name}/J": factor for name, factor in BYTES.items()},
    "1/s": {"1/s": 1.0, "IOPS": 1.0, "ops/s": 1.0}
    | {"kIOPS": 1e3, "KIOPS": 1e3, "kops/s": 1e3, "MIOPS": 1e6},
    "1/J": {"1/J": 1.0, "IOPS/W": 1.0, "kIOPS/W": 1e3},
    "°C": {"°C": 1.0, "C": 1.0},
}

_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\d\s.,'].*?)?\s*")


def unit(name: str) -> str:
    """The unit that a field's name states, such as W for `mean_watts` and µs for
    `latency_us_p99`; empty where it states none."""
    for word, stated in WORDS.items():
        if re.search(rf"(?:^|_){word}(?:_|$)", name):
            return stated
    return ""


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
