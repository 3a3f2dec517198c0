"""What `ebb paper NAME --json` says, read as figures: stated numbers beside the twin's, and curves
sorted into panels by what their axes are.

The binary names a curve in words, such as "Sandman: p99, us over kIOPS"; `panels` takes them apart.
"""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ebb_lab.binary import Binary
from ebb_lab.errors import LabError, WorkError, did_you_mean

#: What stands at the end of a quantity's name as its unit.
UNITS = ("W", "K", "us", "s", "%", "x", "°C", "of the most", "kWh", "GB/s")
#: Names of axes that are units themselves, so that a unit after them is the other axis's.
BARE = ("seconds", "s", "us", "kIOPS")


@dataclass(frozen=True)
class Line:
    """One curve of a panel."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass
class Panel:
    """Curves over the same axes; `names` are those of x where it only counts."""

    x: str
    y: str
    names: tuple[str, ...] = ()
    title: str = ""
    lines: list[Line] = field(default_factory=list)


@dataclass(frozen=True)
class Figure:
    """All that stands under one of a paper's figures: rows as the binary gives them."""

    paper: str
    name: str
    rows: tuple[dict[str, Any], ...]
    panels: tuple[Panel, ...]
    notes: tuple[str, ...]

    @property
    def file(self) -> str:
        """Its name as that of a file, such as `pacer-fig-6`."""
        return "-".join(re.findall(r"[a-z0-9]+", f"{self.paper} {self.name}".lower()))


def names(ebb: Binary) -> list[str]:
    """The papers that the binary can repeat."""
    told = subprocess.run(
        [ebb.path, "paper", "--help"], capture_output=True, text=True, check=True, timeout=60
    )
    return re.findall(r"^\s+- ([a-z0-9-]+):", told.stdout, re.MULTILINE)


def check(ebb: Binary, papers: Sequence[str]) -> None:
    """`LabError` for the first that is neither a paper nor a file that is there."""
    known = names(ebb)
    for each in papers:
        path = Path(each)
        if path.suffix != ".json" and each not in known:
            raise LabError(each, "no such paper, and no file .json", did_you_mean(each, known))
        if path.suffix == ".json" and not path.is_file():
            raise LabError(
                each, "No such file or directory", "Name a paper, or output of ebb paper --json"
            )


def read(ebb: Binary, paper: str, folder: Path, words: Sequence[str]) -> list[Figure]:
    """The figures of a paper, or of a file that `ebb paper NAME --json` wrote."""
    path = Path(paper)
    if path.suffix != ".json":
        check(ebb, [paper])
        path = folder / f"{paper}.json"
        _simulate(ebb, paper, path, words)
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return _figures(path.stem, told["rows"], told["curves"])
    except OSError as error:
        raise LabError(str(path), f"{error.strerror}", "Name a paper or such a file") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(str(path), "no output of ebb paper --json", "Make it anew") from error


def _simulate(ebb: Binary, paper: str, path: Path, words: Sequence[str]) -> None:
    """Repeats the paper's evaluation; progress and errors are the binary's own."""
    ended = subprocess.run(
        [ebb.path, "paper", paper, "--json", "--full", *words], stdout=subprocess.PIPE, check=False
    )
    if ended.returncode:
        raise WorkError(
            f"ebb paper {paper}", f"exit code {ended.returncode}", "It says above what was wrong"
        )
    partial = path.with_suffix(".partial")
    partial.write_bytes(ended.stdout)
    partial.replace(path)


def _figures(paper: str, rows: list[dict[str, Any]], curves: list[dict[str, Any]]) -> list[Figure]:
    found = []
    for name in dict.fromkeys(each["figure"] for each in (*rows, *curves)):
        own = [each for each in curves if each["figure"] == name]
        found.append(
            Figure(
                paper=paper,
                name=name,
                rows=tuple(row for row in rows if row["figure"] == name),
                panels=panels([each for each in own if len(each["x"]) > 1]),
                # A single point is a number with a name.
                notes=tuple(
                    f"{each['series']}: {each['y'][0]:.4g}" for each in own if len(each["x"]) == 1
                ),
            )
        )
    return found


def panels(curves: Sequence[dict[str, Any]]) -> tuple[Panel, ...]:
    """Curves by their axes, in their order; what all labels of a panel share is its title."""
    found: dict[tuple[str, str, tuple[str, ...]], Panel] = {}
    labels: dict[int, list[list[str]]] = {}
    # Panels of a unit, in which labels say what is counted.
    units: set[int] = set()
    legends = list(dict.fromkeys(parts[0] for parts in map(_legend, curves) if parts[0]))
    for curve in curves:
        label, x, y, points = _parts(curve, legends)
        panel = found.setdefault((x, y, points), Panel(x, y, points))
        labels.setdefault(id(panel), []).append([part for part in label if part])
        if y in UNITS and not _legend(curve)[0]:
            units.add(id(panel))
        panel.lines.append(Line("", tuple(curve["x"]), tuple(curve["y"])))
    for panel in found.values():
        own = labels[id(panel)]
        shared = [part for part in own[0] if all(part in each for each in own)]
        if len(own) > 1 or len(own[0]) > 1:
            panel.title = ", ".join(shared)
            if panel.title and id(panel) in units:
                panel.title, panel.y = "", f"{panel.title}, {panel.y}"
        else:
            shared = []
        panel.lines = [
            Line(", ".join(part for part in each if part not in shared), line.x, line.y)
            for line, each in zip(panel.lines, own, strict=True)
        ]
    return tuple(found.values())


def _legend(curve: dict[str, Any]) -> tuple[str, str]:
    """What stands before the last colon, and the rest."""
    before, colon, after = str(curve["series"]).rpartition(": ")
    return (before, after) if colon else ("", after)


def _parts(
    curve: dict[str, Any], legends: list[str]
) -> tuple[list[str], str, str, tuple[str, ...]]:
    """Parts of the label, both axes, and names of the points."""
    label, rest = _legend(curve)
    if counted := _counted(rest, len(curve["x"]), legends):
        extra, x, y, points = counted
        return [label, extra], x, y, points
    if by := re.fullmatch(r"(.+?)(?:, (on [^,]+))?, by (.+)", rest):
        return [label, by[2] or ""], by[3], by[1], ()
    if below := re.fullmatch(r"(percent of .+) below (\w+)(?:, (.+))?", rest):
        return [label, below[3] or ""], below[2], below[1], ()
    return *_over(label, rest), ()


def _counted(
    rest: str, count: int, legends: list[str]
) -> tuple[str, str, str, tuple[str, ...]] | None:
    """Where x only counts: the label's other part, both axes and names of the points."""
    numbered = re.findall(r"\d+ ([^,]+)", rest)
    if re.match(r"1 [^,]+, 2 ", rest) and len(numbered) == count:
        return "", "", "x of native's", tuple(numbered)
    if listed := re.fullmatch(r"(.+), on ((?:\w+, )+\w+)", rest):
        points = tuple(listed[2].split(", "))
        if len(points) == count:
            return "", "", listed[1], points
    if ordered := re.fullmatch(r"(.+), by configuration in their order(?:, (.+))?", rest):
        points = tuple(legends) if len(legends) == count else ()
        return ordered[2] or "", "" if points else "configuration", ordered[1], points
    return None


def _over(label: str, rest: str) -> tuple[list[str], str, str]:
    """ "Y over X" with units and what tells the curve from others: label, both axes."""
    y, over, x = rest.rpartition(" over ")
    if not over:
        return [label], "", rest
    y = y.rstrip(",")
    x, _, extra = x.partition("; ")
    x, _, after = x.partition(", ")
    if after in UNITS:
        x, y = (x, f"{y}, {after}") if x in BARE else (f"{x}, {after}", y)
        after = ""
    parts = [label, extra, after]
    what, _, unit = y.rpartition(", ")
    if not label and what and unit in UNITS:
        if of := re.fullmatch(r"(.+) of ([\w-]+)", what):
            return [of[2], *parts], x, f"{of[1]}, {unit}"
        return [what, *parts], x, unit
    return parts, x, y
