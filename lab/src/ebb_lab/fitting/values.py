"""A value of one run's results: fields of `ebb sim --json`, their products and quotients."""

from collections.abc import Mapping
from typing import Any

from ebb_lab.errors import LabError, did_you_mean
from ebb_lab.fields import SCALES, factor, flatten
from ebb_lab.fields import unit as unit_of


def check(where: str, text: str) -> None:
    """Refuses what is no such expression, before anything is run."""
    words = text.split()
    if len(words) % 2 == 0 or any(sign not in ("*", "/") for sign in words[1::2]):
        raise LabError(
            where, f"'{text}' is no value", "Such as 'mean_watts' or 'energy_joules_ssd / seconds'"
        )


def unit(text: str) -> str:
    """The unit of an expression that `check` let pass; none where it has numbers, which may convert
    it, or where a field states none."""
    words = text.split()
    if len(words) == 1:
        return unit_of(text)
    of = {"J / s": "W", "B / s": "B/s", "B / J": "B/J", "1/s / W": "1/J"}
    return of.get(
        " ".join((unit_of(words[0]), words[1], unit_of(words[2]))) if len(words) == 3 else "", ""
    )


def scale(where: str, text: str, stated: str) -> float:
    """What one of the stated unit is in that of the expression; 1 where one of them has none, but
    percent are hundredths of a field."""
    own = unit(text)
    if not own or not stated:
        share = None if own or " " in text else factor(SCALES[""], stated)
        return 1.0 if share is None else share
    kind = SCALES.get(own, {own: 1.0})
    found = factor(kind, stated)
    if found is None:
        raise LabError(
            where,
            f"'{stated}' is no unit of '{text}', which is in {own}",
            f"State 'unit' beside the column, one of: {', '.join(kind)}",
        )
    return found


def row(run: Mapping[str, Any]) -> dict[str, Any]:
    """A run's fields by name; those of jobs and parts of the load have its name, such as
    `jobs_tpch-q1_delay_seconds` and `parts_mail_bytes`."""
    found = flatten(run)
    for key in ("jobs", "parts"):
        for each in run.get(key, []):
            own = {k: v for k, v in each.items() if k != "name"}
            found |= flatten(own, f"{key}_{each['name']}_")
    return found


def evaluate(where: str, text: str, fields: Mapping[str, Any]) -> float:
    """The value of an expression that `check` let pass."""
    words = text.split()
    result = _term(where, words[0], fields)
    for sign, word in zip(words[1::2], words[2::2], strict=True):
        term = _term(where, word, fields)
        if sign == "/" and term == 0:
            raise LabError(where, f"'{word}' is 0 and divides", "Another value")
        result = result * term if sign == "*" else result / term
    return result


def divisor(where: str, text: str, fields: Mapping[str, Any]) -> float:
    """The same where it divides another one."""
    found = evaluate(where, text, fields)
    if found == 0:
        raise LabError(where, f"'{text}' is 0 where 'over' divides by it", "Another value")
    return found


def _term(where: str, word: str, fields: Mapping[str, Any]) -> float:
    try:
        return float(word)
    except ValueError:
        pass
    if word not in fields:
        raise LabError(where, f"no field '{word}'", did_you_mean(word, fields))
    found = fields[word]
    if isinstance(found, bool):
        return float(found)
    if not isinstance(found, int | float):
        raise LabError(where, f"'{word}' is {found!r}, no number", "Another field")
    return float(found)
