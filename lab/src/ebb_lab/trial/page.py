"""A trial as one self-contained HTML page: it loads nothing from anywhere."""

from collections.abc import Sequence
from html import escape

from ebb_lab import text
from ebb_lab.markup import STYLE, bullets
from ebb_lab.trial import judging
from ebb_lab.trial.judging import Difference, Verdict

_STYLE = """
.native { fill: var(--bar) } .policy { fill: #d9772b } .frame { fill: none; stroke: var(--line) }
.stopped { background: var(--mark); padding: 0.1rem 0.5rem; border-radius: 0.3rem }
"""
_WIDTH, _HEIGHT, _LEFT = 720, 150, 90


def html(verdict: Verdict, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The page's text."""
    course, design = verdict.course, verdict.course.design
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    kind = "measured" if verdict.meter and verdict.meter.measured else "in part modelled"
    meter = f"Power of {verdict.meter.title}, {kind}. " if verdict.meter else ""
    stopped = (
        "" if course.end == "complete" else f'<p><span class="stopped">{course.end}</span></p>'
    )
    asked = (
        f"{verdict.pairs} of {design.pairs} pairs of blocks of {text.duration(design.block_s)}, "
        f"the first {text.duration(design.washout_s)} not counted; order by seed {design.seed}; "
        f"stops where the mean latency of {design.window_s:g} s is more than "
        f"{design.tolerate:.0%} above native. Host {course.about.get('host', 'unknown')}, "
        f"ebb {course.about.get('version', 'unknown')}."
    )
    uncounted = [f"block {name} does not count: {why}" for name, why in course.uncounted]
    notes = [f"{note}." for note in verdict.notes]
    charts = "".join(_chart(verdict, each) for each in verdict.differences)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Trial of {escape(design.policy)}</title>
<meta name="viewport" content="width=device-width"><style>{STYLE}{_STYLE}</style></head><body>
<h1>{escape(verdict.conclusion)}</h1>{stopped}
<p>{escape(meter + asked)}</p>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>
{bullets(uncounted)}
<h2>Notes</h2>{bullets(notes)}
{charts}
</body></html>
"""


def _chart(verdict: Verdict, each: Difference) -> str:
    """Every block that counts, over time; the scale begins at the least value."""
    assert verdict.meter is not None  # noqa: S101 - without it there are no differences
    factor = {name: factor for name, _, _, factor in judging.VALUES}[each.name]
    points: list[tuple[float, float, str]] = []
    for block in verdict.course.blocks:
        value = judging.value(block, each.name, verdict.meter)
        if value is not None:
            points.append((block.started, value * factor, block.arm))
    times, values = [point[0] for point in points], [point[1] for point in points]
    begin, end, low, high = min(times), max(times), min(values), max(values)
    dots = "".join(
        f'<circle class="{arm}" r="5" cx="{_LEFT + _share(at, begin, end) * _WIDTH:.1f}" '
        f'cy="{10 + (1 - _share(value, low, high)) * (_HEIGHT - 20):.1f}"/>'
        for at, value, arm in points
    )
    title = f"{each.title} of each block ({each.unit}): blue native, orange policy"
    return (
        f'<h2>{escape(title)}</h2><div class="wide">'
        f'<svg width="{_LEFT + _WIDTH + 20}" height="{_HEIGHT + 30}" '
        f'role="img" aria-label="{escape(title)}">'
        f'<rect class="frame" x="{_LEFT - 10}" y="0" width="{_WIDTH + 20}" height="{_HEIGHT}"/>'
        f'<text x="0" y="18">{text.number(high)}</text>'
        f'<text x="0" y="{_HEIGHT - 5}">{text.number(low)}</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT + 20}">0</text>'
        f'<text x="{_LEFT + _WIDTH - 60}" y="{_HEIGHT + 20}">{text.duration(end - begin)}</text>'
        f"{dots}</svg></div>"
    )


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5
