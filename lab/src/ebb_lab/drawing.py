"""How the lab's figures look and are written: the same data, the same bytes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ebb_lab.errors import WorkError

FORMATS = (".pdf", ".png", ".svg")
#: A panel fits a column of a two-column page, inches.
WIDTH, HEIGHT = 3.4, 2.4
#: Okabe and Ito's colours, which readers with any colour vision tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")


@contextmanager
def pyplot(dpi: int = 200) -> Iterator[Any]:
    """matplotlib's pyplot in the lab's style, drawing to files only."""
    import matplotlib as mpl
    from cycler import cycler

    mpl.use("agg")
    from matplotlib import pyplot as plt

    style: Any = {
        "font.size": 8,
        "svg.fonttype": "none",
        "svg.hashsalt": "ebb",
        "savefig.dpi": dpi,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=COLOURS),
    }
    with plt.rc_context(style):
        yield plt


def save(figure: Any, path: Path, where: str) -> None:
    """Writes a figure; `where` is what an error names."""
    stamp = {".pdf": "CreationDate", ".svg": "Date"}.get(path.suffix)
    try:
        figure.savefig(path, metadata={stamp: None} if stamp else None)
    except OSError as error:
        raise WorkError(where, f"{error.strerror}", "Name another") from error
