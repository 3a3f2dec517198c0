"""Comparisons as a figure for print: medians with their intervals, a panel for each comparison."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from ebb_lab.errors import LabError, WorkError
from ebb_lab.statistics import Comparison

FORMATS = (".pdf", ".png", ".svg")
_WIDTH, _HEIGHT = 3.4, 2.4  # inches: a panel fits a column of a two-column page
_COLUMNS = 3


def check(path: Path) -> None:
    """`LabError` where no figure can be written there: told before any work is done."""
    if path.suffix not in FORMATS:
        raise LabError(
            f"--figure {path}", "no format of figures", f"There are {', '.join(FORMATS)}"
        )
    if not path.resolve().parent.is_dir():
        raise LabError(f"--figure {path}", "no such folder", "Make it, or name another file")


def write(comparisons: Sequence[Comparison], path: Path) -> None:
    """Writes the figure; the same comparisons give the same bytes."""
    check(path)
    mpl.use("agg")
    from matplotlib import pyplot  # noqa: PLC0415 - after the choice of what draws

    style: Any = {"font.size": 8, "svg.fonttype": "none", "svg.hashsalt": "ebb", "savefig.dpi": 200}
    columns = min(_COLUMNS, len(comparisons))
    rows = -(-len(comparisons) // columns)
    with pyplot.rc_context(style):
        figure, panels = pyplot.subplots(
            rows,
            columns,
            figsize=(_WIDTH * columns, _HEIGHT * rows),
            squeeze=False,
            layout="constrained",
        )
        for panel in panels.flat[len(comparisons) :]:
            panel.set_axis_off()
        for comparison, panel in zip(comparisons, panels.flat, strict=False):
            _panel(comparison, panel)
        stamp = {".pdf": "CreationDate", ".svg": "Date"}.get(path.suffix)
        try:
            figure.savefig(path, metadata={stamp: None} if stamp else None)
        except OSError as error:
            raise WorkError(f"--figure {path}", f"{error.strerror}", "Name another file") from error
        finally:
            pyplot.close(figure)


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
