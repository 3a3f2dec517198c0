"""`ebb-lab figures`: a paper's figures drawn anew, its numbers beside the twin's."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ebb_lab import binary, drawing, papers
from ebb_lab.errors import LabError, WorkError
from ebb_lab.papers import Figure, Panel

_COLUMNS = 3
#: Inches of a row's line and of what stands above and below the rows.
_ROW, _MARGIN = 0.3, 0.9
#: A row's name is broken after so many characters.
_WRAP = 44
#: Deviations beyond this share are drawn at the edge, with their number.
_EDGE = 1.0
#: Curves of so few points show them.
_MARKED = 20
#: A range of so many times its least value takes a logarithmic axis.
_MAGNITUDES = 40
#: Letters of a legend in an inch.
_LETTERS = 15
#: Axes whose values stand at equal distances.
_COUNTED = ("percentile",)
_STROKES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_SIGNS = {"us": "µs", "x": "ratio"}
_ALONE = {
    "us": "latency (µs)",
    "s": "time (s)",
    "seconds": "time (s)",
    "W": "power (W)",
    "KB": "request size (KB)",
    "MB/s": "throughput (MB/s)",
    "MB/J": "efficiency (MB/J)",
    "x": "ratio",
    "of the most": "share of the most",
    "x of native's": "ratio to native's",
}
_KINDS = {
    "calibrated": ("#7f7f7f", "s"),
    "fitted": ("#7f7f7f", "D"),
    "as-stated": ("#0072B2", "o"),
    "predicted": ("#0072B2", "o"),
    "reinterpreted": ("#E69F00", "^"),
    "stress": ("#D55E00", "v"),
    "arithmetic": ("#CC79A7", "P"),
    "modelled": ("#000000", "x"),
}


def draw(
    names: Sequence[str],
    folder: Path,
    *,
    formats: Sequence[str] = ("pdf", "svg", "png"),
    words: Sequence[str] = (),
    dpi: int = 200,
) -> list[Path]:
    """Draws every figure of these papers, or files of `ebb paper --json`, and names what it wrote.

    `words` are further options of `ebb paper`, such as `--figure=6`.
    """
    for each in formats:
        if f".{each}" not in drawing.FORMATS:
            raise LabError(f"--format {each}", "no such format", "There are pdf, png, svg")
    ebb = binary.find()
    papers.check(ebb, names)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkError(f"-o {folder}", f"{error.strerror}", "Name another") from error
    written = []
    with drawing.pyplot(dpi) as plt:
        for name in names or papers.names(ebb):
            for file, figure in drawn(plt, papers.read(ebb, name, folder, words)):
                for each in formats:
                    path = folder / f"{file}.{each}"
                    drawing.save(figure, path, f"-o {folder}")
                    written.append(path)
    return written


def drawn(plt: Any, figures: Sequence[Figure]) -> Iterator[tuple[str, Any]]:
    """Every figure under its file's name, and all rows of the paper in one."""
    for about in figures:
        figure = _figure(plt, about)
        yield about.file, figure
        plt.close(figure)
    rows = [row for figure in figures for row in figure.rows]
    if rows:
        figure, panel = plt.subplots(
            figsize=(2.4 * drawing.WIDTH, _ROW * len(rows) + _MARGIN), layout="constrained"
        )
        _rows(panel, rows, with_figure=True)
        figure.suptitle(f"{figures[0].paper}: stated numbers and the twin's, simulated", fontsize=9)
        yield f"{figures[0].paper}-rows", figure
        plt.close(figure)


def _figure(plt: Any, figure: Figure) -> Any:
    """Rows above, panels of curves below; each part keeps the margins that it needs."""
    rows, panels = figure.rows, figure.panels
    columns = 2 if len(panels) in (2, 4) else min(_COLUMNS, max(1, len(panels)))
    lines = -(-len(panels) // columns)
    many = [panel for panel in panels if len(panel.lines) > 1]
    shared = len({tuple(line.label for line in panel.lines) for panel in many}) == 1
    legend = 0.17 * max((-(-len(panel.lines) // 2) for panel in panels), default=0)
    heights = [_ROW * len(rows) + _MARGIN] if rows else []
    if panels:
        heights.append((drawing.HEIGHT + (0 if shared else legend)) * lines + legend)
    width = drawing.WIDTH * max(columns, 2.2 if rows else 1.5)
    drawn = plt.figure(figsize=(width, sum(heights) + 0.4), layout="constrained")
    parts = list(drawn.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0])
    if rows:
        _rows(parts[0].subplots(), rows)
    if panels:
        axes = parts[-1].subplots(lines, columns, squeeze=False)
        for panel in axes.flat[len(panels) :]:
            panel.set_axis_off()
        for panel, about in zip(axes.flat, panels, strict=False):
            _panel(panel, about, legend=not shared)
        if shared:
            first = axes.flat[panels.index(many[0])]
            handles, labels = first.get_legend_handles_labels()
            fit = int(_LETTERS * width / (max(map(len, labels)) + 8))
            parts[-1].legend(
                handles,
                labels,
                loc="outside lower center",
                ncols=max(1, min(4, fit, len(labels))),
                frameon=False,
            )
    title = f"{figure.paper}, {figure.name}, simulated"
    drawn.suptitle("\n".join([title, *figure.notes]), fontsize=9)
    return drawn


def _rows(panel: Any, rows: Sequence[dict[str, Any]], with_figure: bool = False) -> None:
    """A line for each stated number: how far the twin is from it, and both."""
    shown = []
    for index, row in enumerate(rows):
        deviation = row.get("deviation")
        colour, marker = _KINDS.get(row["kind"], ("#000000", "x"))
        if row["paper"] is None:
            text = _number(row["twin"])
        elif deviation is None:
            # Without a number of the twin's, or a bound.
            sign = {"most": "≤ ", "least": "≥ "}.get(row.get("bound", ""), "")
            found = row.get("note") or _number(row["twin"])
            text = f"{sign}{_number(row['paper'])} → {found}"
        else:
            text = f"{_number(row['paper'])} → {_number(row['twin'])}"
            at = max(-_EDGE, min(_EDGE, deviation))
            label = row["kind"] if row["kind"] not in shown else None
            shown.append(row["kind"])
            panel.plot([0, at], [index, index], color=colour, linewidth=1.2)
            if ends := row.get("range"):
                shares = [(end - row["paper"]) / abs(row["paper"]) for end in ends]
                shares = [max(-_EDGE, min(_EDGE, share)) for share in shares]
                panel.plot(shares, [index, index], color=colour, linewidth=5, alpha=0.25)
            panel.plot(
                at, index, marker=marker, color=colour, markersize=5, linestyle="", label=label
            )
            if abs(deviation) > 1.005 * _EDGE:
                text += f"  ({deviation:+.0%})"
        panel.annotate(
            text,
            (1.02, index),
            xycoords=("axes fraction", "data"),
            va="center",
            annotation_clip=False,
        )
    names = [
        f"{row['figure']}: {row['quantity']}" if with_figure else row["quantity"] for row in rows
    ]
    panel.set_yticks(range(len(rows)), [_wrapped(name) for name in names])
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.set_xlim(-1.05 * _EDGE, 1.05 * _EDGE)
    panel.set_xticks([-1, -0.5, 0, 0.5, 1], ["−100 %", "−50 %", "paper", "+50 %", "+100 %"])
    panel.axvline(0, color="black", linewidth=0.8)
    panel.grid(axis="x", color="#dddddd", linewidth=0.5)
    panel.set_axisbelow(True)
    panel.tick_params(length=0)
    panel.annotate(
        "paper → twin", (1.02, 1.0), xycoords="axes fraction", va="bottom", annotation_clip=False
    )
    if shown:
        panel.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False, borderpad=0
        )


def _panel(panel: Any, about: Panel, legend: bool) -> None:
    """Curves over their axes; bars side by side where x only counts."""
    many = len(about.lines) > 1
    if about.names:
        _bars(panel, about)
    else:
        for number, line in enumerate(about.lines):
            # Curves that lie on one another are told apart by their strokes.
            panel.plot(
                range(len(line.x)) if about.x in _COUNTED else line.x,
                line.y,
                marker="osD^vP*X"[number % 8] if len(line.x) <= _MARKED else "",
                markersize=3,
                linewidth=1.8 if number == 0 else 1.1,
                linestyle=_STROKES[number % len(_STROKES)],
                label=line.label,
            )
        panel.set_xlabel(_axis(about.x))
        _scales(panel, about)
        if about.x in _COUNTED:
            first = about.lines[0].x
            panel.set_xticks(range(len(first)), [f"{x:g}" for x in first])
    label = about.lines[0].label if not many else ""
    panel.set_ylabel(_axis(f"{label}, {about.y}" if label and about.y in papers.UNITS else about.y))
    panel.set_title(about.title, fontsize=8)
    if many and legend:
        panel.legend(
            loc="upper left", bbox_to_anchor=(0, -0.22), ncols=2, frameon=False, fontsize=7
        )


def _bars(panel: Any, about: Panel) -> None:
    width = 0.8 / len(about.lines)
    for number, line in enumerate(about.lines):
        left = [x + (number + 0.5) * width - 0.4 for x in range(len(line.y))]
        again = number >= len(drawing.COLOURS)
        hatch = "///" if again else None
        panel.bar(left, line.y, width, label=line.label, hatch=hatch, edgecolor="white", lw=0.3)
    long = sum(map(len, about.names)) > 30
    panel.set_xticks(
        range(len(about.names)),
        about.names,
        rotation=40 if long else 0,
        ha="right" if long else "center",
        rotation_mode="anchor" if long else "default",
    )
    panel.axhline(0, color="black", linewidth=0.8)


def _scales(panel: Any, about: Panel) -> None:
    """Magnitudes on logarithmic axes; otherwise from zero where that does not flatten curves."""
    xs = sorted({x for line in about.lines for x in line.x})
    ys = [y for line in about.lines for y in line.y]
    if xs[0] > 0 and xs[-1] > _MAGNITUDES * xs[0]:
        panel.set_xscale("log")
        panel.set_xticks([x for x in xs if len(xs) <= _MARKED] or panel.get_xticks())
        panel.minorticks_off()
        panel.xaxis.set_major_formatter("{x:,.10g}")
    if min(ys) > 0 and max(ys) > _MAGNITUDES * min(ys):
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter("{x:,.10g}")
    elif 0 <= min(ys) < 0.5 * max(ys):
        panel.set_ylim(bottom=0)
    panel.grid(color="#dddddd", linewidth=0.5)


def _axis(name: str) -> str:
    """`p99, us` as `p99 (µs)`, broken where it is long."""
    what, comma, unit = name.rpartition(", ")
    if comma and unit in papers.UNITS:
        told = f"{what} ({_SIGNS.get(unit, unit)})"
    elif name in _ALONE:
        told = _ALONE[name]
    else:
        # The binary names units of all but ratios.
        told = f"{name} (ratio)" if re.search("latency|IOPS(/W)?$", name) else name
        told = "load (kIOPS)" if name == "kIOPS" else told
    return textwrap.fill(told, 30)


def _wrapped(name: str) -> str:
    """Broken into lines, but not between a number or a comma and its unit."""
    return textwrap.fill(re.sub(r"(?<=[\d,]) (?=[%xWK]|us|GB/s)", "\u00a0", name), _WRAP)


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
