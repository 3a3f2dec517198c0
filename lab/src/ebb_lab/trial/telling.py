"""A trial's answer for people on a terminal, as JSON, and as files in its folder."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ebb_lab import text
from ebb_lab.markup import save
from ebb_lab.trial import page
from ebb_lab.trial.judging import Difference, Interval, Verdict

PAGE, RESULT = "trial.html", "result.json"

HEADER = ("value", "native", "policy", "difference", "interval", "percent", "interval", "")


def tell(verdict: Verdict, folder: Path) -> str:
    """The conclusion, a table, what does not count, notes."""
    lines = [f"{verdict.conclusion}."]
    if verdict.differences:
        lines.append(text.table(HEADER, table(verdict)))
    lines += [f"  does not count: block {name}: {why}" for name, why in verdict.course.uncounted]
    lines += [f"  Note: {note}." for note in verdict.notes]
    return "\n".join([*lines, f"  page: {folder / PAGE}"])


def table(verdict: Verdict) -> list[tuple[str, ...]]:
    """A row for each value."""
    return [_row(each) for each in verdict.differences]


def as_json(verdict: Verdict) -> dict[str, Any]:
    """What `--json` prints (docs/json-schema/lab-trial-1.json)."""
    course = verdict.course
    about = {key: value for key, value in course.about.items() if key not in ("schema", "design")}
    return {
        "schema": 1,
        "conclusion": verdict.conclusion,
        "end": course.end,
        "why": course.why,
        "design": asdict(course.design),
        "about": about,
        "meter": asdict(verdict.meter) if verdict.meter else None,
        "pairs": verdict.pairs,
        "differences": [
            asdict(each) | {"shown": each.shown if each.difference else None}
            for each in verdict.differences
        ],
        "blocks": [asdict(block) for block in course.blocks],
        "uncounted": [{"block": name, "why": why} for name, why in course.uncounted],
        "notes": list(verdict.notes),
    }


def write(verdict: Verdict, folder: Path) -> None:
    """The page and the JSON."""
    told = json.dumps(as_json(verdict), ensure_ascii=False, allow_nan=False, indent=1)
    save(told + "\n", folder / RESULT, f"-o {folder}")
    html = page.html(verdict, HEADER, table(verdict))
    save(html, folder / PAGE, f"-o {folder}")


def _row(each: Difference) -> tuple[str, ...]:
    unit = f"{each.title} ({each.unit})"
    means = (text.number(each.native), text.number(each.policy))
    if each.difference is None:
        return (unit, *means, "–", "–", "–", "–", "too few pairs")
    shown = "different" if each.shown else "no difference shown"
    share = each.relative
    return (
        unit,
        *means,
        text.number(each.difference.value),
        _bounds(each.difference, text.number),
        text.percent(share.value if share else None),
        _bounds(share, text.percent) if share else "–",
        shown,
    )


def _bounds(interval: Interval, told: Any) -> str:
    return f"{told(interval.low)} … {told(interval.high)}"
