"""Comparisons as a figure for print: medians with their intervals, a panel for each comparison."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ebb_lab import drawing
from ebb_lab.errors import LabError
from ebb_lab.statistics import Comparison

_COLUMNS = 3


def check(path: Path) -> None:
    """`LabError` where no figure can be written there: told before any work is done."""
    if path.suffix not in drawing.FORMATS:
        raise LabError(
            f"--figure {path}", "no format of figures", f"There are {', '.join(drawing.FORMATS)}"
        )
    if not path.resolve().parent.is_dir():
        raise LabError(f"--figure {path}", "no such folder", "Make it, or name another file")


def write(comparisons: Sequence[Comparison], path: Path) -> None:
    """Writes the figure; the same comparisons give the same bytes."""
    check(path)
    columns = min(_COLUMNS, len(comparisons))
    rows = -(-len(comparisons) // columns)
    with drawing.pyplot() as plt:
        figure, panels = plt.subplots(
            rows,
            columns,
            figsize=(drawing.WIDTH * columns, drawing.HEIGHT * rows),
            squeeze=False,
            layout="constrained",
        )
        for panel in panels.flat[len(comparisons) :]:
            panel.set_axis_off()
        for comparison, panel in zip(comparisons, panels.flat, strict=False):
            _panel(comparison, panel)
        try:
            drawing.save(figure, path, f"--figure {path}")
        finally:
            plt.close(figure)


def _panel(comparison: Comparison, panel: Any) -> None:
    """Groups from left to right; from zero where values are positive, so that heights compare."""
    groups = comparison.groups
    middle = [group.median for group in groups]
    below = [group.median - group.low for group in groups]
    above = [group.high - group.median for group in groups]
    panel.bar(range(len(groups)), middle, color="#9fc2e0", width=0.6)
    panel.errorbar(
        range(len(groups)), middle, yerr=[below, above], fmt="none", ecolor="black", capsize=3
    )
    panel.set_xticks(range(len(groups)), [group.name for group in groups])
    unit = f" ({comparison.unit})" if comparison.unit else ""
    panel.set_ylabel(comparison.value + unit)
    shown = "" if comparison.different else ": no difference shown"
    panel.set_title(comparison.experiment + shown, fontsize=8)
