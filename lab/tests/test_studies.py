"""Every declaration in `studies` is one that the lab reads, and the files it names are there."""

import importlib.util
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


def test_rows_that_ran_replace_the_kept_ones_and_say_what_made_them() -> None:
    spec = importlib.util.spec_from_file_location("keep", STUDIES / "keep.py")
    assert spec and spec.loader
    keep = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(keep)
    before = {"command": "ebb paper x --full", "version": "1", "commit": "a", "sources": "s"}
    old = {
        "runs": [before],
        "rows": [{"id": "a/one", "twin": 1.0, "run": 0}, {"id": "a/two", "twin": 2.0, "run": 0}],
    }
    ran = {"id": "a/one", "twin": 3.0, "figure": "Fig. 1"}
    rows = [{"id": "a/two", "twin": 9.0, "kept": True}, ran, {"twin": 5.0}]
    report = {"version": "2", "sources": "t", "rows": rows}
    new = keep.merged(old, report, "ebb paper x --figure 1", "b")
    now = {"command": "ebb paper x --figure 1", "version": "2", "commit": "b", "sources": "t"}
    assert new == {
        "runs": [now, before],
        "rows": [{"id": "a/one", "twin": 3.0, "run": 0}, {"id": "a/two", "twin": 2.0, "run": 1}],
    }
    assert keep.merged(new, report | {"rows": [ran]}, now["command"], "b") == new
