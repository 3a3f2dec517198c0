"""What pages share: their style, lists, and how they are written."""

from html import escape
from pathlib import Path

from ebb_lab.errors import WorkError

STYLE = """
:root { color-scheme: light dark; --text: #1c2530; --page: #fff; --line: #d6dde5; --bar: #3b7dba;
  --bad: #a4262c; --mark: #fff4d6 }
@media (prefers-color-scheme: dark) { :root { --text: #dde4ec; --page: #14191f; --line: #36414d;
  --bar: #6aa9e0; --bad: #ff8a85; --mark: #4a3f1c } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem;
  color: var(--text); background: var(--page) }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem } a { color: var(--bar) }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--line); text-align: right }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left }
td.no { color: var(--bad); font-weight: 600 }
.modelled { background: var(--mark); padding: 0.1rem 0.5rem; border-radius: 0.3rem }
svg text { font-size: 13px; fill: var(--text) }
div.wide { overflow-x: auto }
code { overflow-wrap: anywhere } footer { margin-top: 3rem; font-size: 0.9rem }
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
