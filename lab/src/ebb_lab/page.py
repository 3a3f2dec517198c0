"""The plan as one self-contained HTML page: it loads nothing from anywhere."""

import csv
import io
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from urllib.parse import quote

from ebb_lab import planning
from ebb_lab.markup import STYLE, bullets, save
from ebb_lab.planning import Plan, Range

# A bar of each row, and on narrow screens a card of each row of the table.
_STYLE = """
.bars { display: grid; grid-template-columns: minmax(9rem, auto) 1fr; gap: 0.6rem 1rem }
.bar { position: relative; height: 1.5rem } .bar i { display: block; height: 100%;
  background: var(--bar) } .bar.over i { background: var(--bad) }
.bar u { position: absolute; top: 50%; border-top: 2px solid var(--text); text-decoration: none }
.bars span { display: flex; justify-content: space-between; gap: 1rem }
.bars b { font-weight: 400; font-variant-numeric: tabular-nums }
td:first-child { white-space: nowrap }
@media (max-width: 60rem) {
  .bars { grid-template-columns: 1fr; gap: 0 } .bar { margin-bottom: 0.8rem }
  table, tbody { display: block } thead { display: none } tr { display: block; padding: 0.5rem 0;
    border-bottom: 1px solid var(--line) }
  td { display: flex; justify-content: space-between; gap: 1rem; border: 0; padding: 0.1rem 0 }
  td::before { content: attr(data-of) }
}
"""


def write(answer: Plan, path: Path, command: str, version: str) -> None:
    """Writes the page, which appears when it is whole. It tells the `command` that repeats it and
    the `version` of ebb."""
    save(html(answer, command, version), path, f"--page {path}")


def html(answer: Plan, command: str, version: str) -> str:
    """The page's text."""
    years = f"{answer.question.years:g} years"
    currency = answer.question.currency
    head = "".join(f"<th>{escape(name)}</th>" for name in planning.HEADER)
    body = "".join(_line(cells) for cells in planning.table(answer))
    misfits = [f"{name} does not fit: {reason}" for name, reason in answer.impossible]
    notes = [f"{note}." for note in answer.notes]
    files = (
        ("plan.csv", "text/csv", _csv(answer)),
        (
            "plan.json",
            "application/json",
            json.dumps(planning.as_json(answer), indent=1),
        ),
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Plan</title>
<meta name="viewport" content="width=device-width"><style>{STYLE}{_STYLE}</style></head><body>
<h1>{escape(answer.conclusion)}</h1>
<p><span class="modelled">modelled</span> {escape(planning.assumptions(answer))}.
Traces: {escape(", ".join(answer.question.traces))}.</p>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>
{bullets(misfits)}
{_bars(f"Cost over {years} ({currency})", answer, [row.cost for row in answer.rows])}
{_bars(f"Energy over {years} (kWh)", answer, [row.kwh for row in answer.rows])}
{_bars("p99 latency of the busiest server (µs)", answer, [row.p99_us for row in answer.rows])}
<h2>Notes</h2>{bullets(notes)}
<footer><p>{_downloads(files)}</p>
<p>ebb {escape(version)}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. It is repeated by</p>
<p><code>{escape(command)}</code></p></footer>
</body></html>
"""


def _line(cells: tuple[str, ...]) -> str:
    told = "".join(
        f'<td data-of="{escape(name)}" class="{_class(name, cell)}">{escape(cell)}</td>'
        for name, cell in zip(planning.HEADER, cells, strict=True)
    )
    return f"<tr>{told}</tr>"


def _class(name: str, cell: str) -> str:
    return cell if name == "p99 kept" else ""


def _csv(answer: Plan) -> str:
    """The rows as a file for a spreadsheet: medians, and both ends of their intervals."""
    columns: dict[str, list[object]] = {}
    for row in answer.rows:
        for name, value in vars(row).items():
            parts = vars(value).items() if isinstance(value, Range) else [("", value)]
            for part, cell in parts:
                columns.setdefault(f"{name}_{part}" if part else name, []).append(cell)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return file.getvalue()


def _downloads(files: Iterable[tuple[str, str, str]]) -> str:
    links = (
        f'<a download="{name}" href="data:{kind};charset=utf-8,{quote(content)}">{name}</a>'
        for name, kind, content in files
    )
    return "Download: " + ", ".join(links)


def _bars(title: str, answer: Plan, values: list[Range]) -> str:
    """Medians as bars from zero, intervals as lines."""
    if not values:
        return ""
    most = max(value.high for value in values) or 1.0
    parts = []
    for row, value in zip(answer.rows, values, strict=True):
        low, median, high = (100 * x / most for x in (value.low, value.median, value.high))
        name = escape(f"{row.servers} × {row.profile}, {row.policy}")
        kind = "bar" if row.keeps_p99 else "bar over"
        parts.append(
            f"<span>{name} <b>{value.median:,.0f}</b></span>"
            f'<div class="{kind}"><i style="width:{median:.2f}%"></i>'
            f'<u style="left:{low:.2f}%;width:{high - low:.2f}%"></u></div>'
        )
    return f'<h2>{escape(title)}</h2><div class="bars">{"".join(parts)}</div>'
