"""Every declaration in `studies` is one that the lab reads, and the files it names are there."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebb_lab import binary, grid
from ebb_lab.fitting import declaration

STUDIES = Path(__file__).parents[2] / "studies"
FILES = sorted(STUDIES.rglob("*.toml"))


def texts(value: Any) -> Iterator[str]:
    """All texts in a document."""
    if isinstance(value, str):
        yield value
    for each in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from texts(each)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(STUDIES)))
def test_files_that_a_declaration_names_are_there(path: Path) -> None:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    for text in texts(table):
        if text.endswith((".toml", ".csv")) and " " not in text:
            assert (path.parent / text).is_file(), text
    if path.name.startswith("judge"):
        assert grid.read(path, binary.find()).jobs
    elif "free" in table:
        assert declaration.read(path).baseline
