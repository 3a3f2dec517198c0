"""The plan as one self-contained HTML page: it loads nothing from anywhere."""

from html import escape
from pathlib import Path

from ebb_lab import planning
from ebb_lab.markup import STYLE, bullets, save
from ebb_lab.planning import Plan, Range

_BAR, _GAP, _LEFT, _WIDTH = 22, 10, 260, 620


def write(answer: Plan, path: Path) -> None:
    """Writes the page, which appears when it is whole."""
    save(html(answer), path, f"--page {path}")


def html(answer: Plan) -> str:
    """The page's text."""
    years = f"{answer.question.years:g} years"
    currency = answer.question.currency
    head = "".join(f"<th>{escape(name)}</th>" for name in planning.HEADER)
    body = "".join(_line(cells) for cells in planning.table(answer))
    misfits = [f"{name} does not fit: {reason}" for name, reason in answer.impossible]
    notes = [f"{note}." for note in answer.notes]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Plan</title>
<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>
<h1>{escape(answer.conclusion)}</h1>
<p><span class="modelled">modelled</span> {escape(planning.assumptions(answer))}.
Traces: {escape(", ".join(answer.question.traces))}.</p>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>
{bullets(misfits)}
{_bars(f"Cost over {years} ({currency})", answer, [row.cost for row in answer.rows])}
{_bars(f"Energy over {years} (kWh)", answer, [row.kwh for row in answer.rows])}
{_bars("p99 latency of the busiest server (µs)", answer, [row.p99_us for row in answer.rows])}
<h2>Notes</h2>{bullets(notes)}
</body></html>
"""


def _line(cells: tuple[str, ...]) -> str:
    *most, kept = (escape(cell) for cell in cells)
    told = "".join(f"<td>{cell}</td>" for cell in most)
    return f'<tr>{told}<td class="{kept}">{kept}</td></tr>'


def _bars(title: str, answer: Plan, values: list[Range]) -> str:
    """Medians as bars from zero, intervals as lines."""
    if not values:
        return ""
    scale = _WIDTH / (max(value.high for value in values) or 1.0)
    parts = []
    for number, (row, value) in enumerate(zip(answer.rows, values, strict=True)):
        top = number * (_BAR + _GAP)
        middle = top + _BAR / 2
        low, median, high = (_LEFT + scale * x for x in (value.low, value.median, value.high))
        name = escape(f"{row.servers} × {row.profile}, {row.policy}")
        kind = "bar" if row.keeps_p99 else "over"
        parts.append(
            f'<text x="0" y="{middle + 5}">{name}</text>'
            f'<rect class="{kind}" x="{_LEFT}" y="{top}" width="{median - _LEFT:.1f}" '
            f'height="{_BAR}"/>'
            f'<line class="interval" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>'
            f'<text x="{high + 8:.1f}" y="{middle + 5}">{value.median:,.0f}</text>'
        )
    height = len(values) * (_BAR + _GAP)
    return (
        f"<h2>{escape(title)}</h2>"
        f'<svg width="{_LEFT + _WIDTH + 120}" height="{height}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )
