"""The tutorial runs, and what it shows is what its readers get."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIAL = Path(__file__).parents[1] / "tutorial.ipynb"


def read() -> Any:
    """The notebook as it is kept."""
    return nbformat.read(TUTORIAL, as_version=4)  # type: ignore[no-untyped-call]


def words(cell: Any) -> list[str]:
    """The words of a cell's output: numbers may move with the twin, conclusions may not."""
    told = [
        output.get("text") or output["data"]["text/plain"] for output in cell.get("outputs", [])
    ]
    return re.findall(r"[A-Za-z]{2,}", " ".join(told))


# Jupyter's own, of its transport on this machine.
@pytest.mark.filterwarnings("default::RuntimeWarning", "default::ResourceWarning")
def test_the_tutorial_shows_what_it_gives() -> None:
    kept, again = read(), read()
    assert TUTORIAL.stat().st_size < 30_000
    folder = {"metadata": {"path": str(TUTORIAL.parent)}}
    NotebookClient(again, timeout=300, resources=folder).execute()
    assert sum(bool(words(cell)) for cell in kept.cells) >= 4
    for before, after in zip(kept.cells, again.cells, strict=True):
        assert words(before) == words(after), before.source
