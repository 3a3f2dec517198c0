"""What pages share: their style, lists, and how they are written."""

from html import escape
from pathlib import Path

from ebb_lab.errors import WorkError

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem;
  color: #1c2530; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid #d6dde5;
  text-align: right; white-space: nowrap }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left }
td.no { color: #a4262c; font-weight: 600 }
.modelled { background: #fff4d6; padding: 0.1rem 0.5rem; border-radius: 0.3rem }
svg text { font-size: 13px; fill: #1c2530 } .bar { fill: #3b7dba } .over { fill: #a4262c }
.interval { stroke: #1c2530; stroke-width: 2 }
div.wide { overflow-x: auto }
"""


def save(text: str, path: Path, where: str) -> None:
    """Writes a file that appears when it is whole."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise WorkError(where, f"{error.strerror}", "Name another file") from error


def bullets(items: list[str]) -> str:
    """A list, or nothing."""
    told = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{told}</ul>" if told else ""
