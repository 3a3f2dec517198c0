"""Every `ebb-lab` that a page shows is one that the command line takes, and its files are there."""

import re
import shlex
from pathlib import Path

import pytest

from ebb_lab import cli

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pages in ("*.md", "docs/**/*.md", "studies/**/*.md", "lab/*.md")
    for path in ROOT.glob(pages)
)
#: Folders of the repository: what lies elsewhere is the reader's.
OURS = ("examples/", "studies/")


def calls(page: Path) -> list[list[str]]:
    """The words of each call in blocks of code, without comments."""
    lines = page.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    found = (re.match(r"\s{4,}(?:sudo )?ebb-lab (.*)", line) for line in lines)
    return [shlex.split(call[1], comments=True) for call in found if call]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if calls(page)], ids=lambda page: page.name
)
def test_calls_are_known_and_their_files_there(page: Path) -> None:
    for words in calls(page):
        assert cli.parse(words).command, words
        for word in words:
            if word.startswith(OURS):
                assert (ROOT / word).exists(), words
