"""A grid of experiments in one TOML file: which simulations there are, and what each is called.

    name = "budgets"

    [options]                     # of every run: options of `ebb sim`, without the hyphens
    workload = "fio-servers"
    policy = ["native", "sspc", "pacman"]
    duration = "12 s"

    [axes]                        # every value of one with every value of the others
    profile = ["asg-1115s", "mine.toml"]
    ssd-budget = ["224 W", "170 W"]
    seed = { from = 1, to = 20 }

    [[cases]]                     # what varies together; each case with all of the axes
    name = "writes"
    read = "0%"

An option that may be repeated takes a list; on an axis, a list within the list. File names are
relative to the folder of the grid. A run's key is a digest of its options, of the contents of all
files that it reads and of the binary: the same key, the same result.
"""

import functools
import hashlib
import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebb_lab import toml
from ebb_lab.binary import Binary
from ebb_lab.errors import LabError

#: Options of `ebb sim` that say where results go; those are the lab's own business.
OURS = ("decisions", "experiment", "json", "list", "quiet", "report", "threads", "timeseries")
#: Options whose values are files; of the second kind, a shipped name is none.
FILES = ("trace", "curve")
NAMES_OR_FILES = ("profile", "workload")

Words = tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """One `ebb sim`: all policies over the same requests on the same server with one seed."""

    key: str
    #: The words of the command line, without the binary and the output.
    words: Words
    #: Where it runs, since names of files are relative.
    folder: str
    #: Name and SHA-256 of each file that it reads.
    files: tuple[tuple[str, str], ...]
    ebb_sha256: str
    #: What tells this run from others: columns of the dataset.
    labels: tuple[tuple[str, str], ...]

    @property
    def title(self) -> str:
        """What a message calls it."""
        return ", ".join(f"{name}={value}" for name, value in self.labels) or "the only run"


@dataclass(frozen=True)
class Grid:
    """All runs of a grid, in the order of the file."""

    name: str
    text: str
    jobs: tuple[Job, ...]


def read(path: Path, binary: Binary) -> Grid:
    """The grid of a TOML file, for this binary."""
    text, table = toml.read(path, "A grid", ("name", "options", "axes", "cases"))
    options = _table(path, table, "options")
    axes = {name: _axis(path, name, value) for name, value in _table(path, table, "axes").items()}
    cases = table.get("cases", [{}])
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise LabError(str(path), "'cases' is no list of tables", "Write [[cases]]")
    jobs = tuple(_jobs(path, options, axes, cases, binary))
    _check_unique(path, jobs)
    return Grid(str(table.get("name", path.stem)), text, jobs)


def _table(path: Path, table: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = table.get(name, {})
    if not isinstance(found, dict):
        raise LabError(str(path), f"'{name}' is no table", f"Write [{name}]")
    return found


def _axis(path: Path, name: str, value: Any) -> list[Any]:
    where = f"{path}: axes.{name}"
    if isinstance(value, dict):
        first, last = value.get("from"), value.get("to")
        if set(value) != {"from", "to"} or not isinstance(first, int) or not isinstance(last, int):
            raise LabError(where, "no range", "Such as { from = 1, to = 20 }, both included")
        value = list(range(first, last + 1))
    if not isinstance(value, list) or not value:
        raise LabError(where, "no values", "A list such as ['a', 'b'], or { from = 1, to = 20 }")
    return value


def _words(where: str, name: str, value: Any) -> Words:
    """An option as words of a command line."""
    if name in OURS:
        raise LabError(where, f"'{name}' says where results go", "Leave it out: see -o")
    if isinstance(value, bool):
        return (f"--{name}",) if value else ()
    values = value if isinstance(value, list) else [value]
    for each in values:
        if isinstance(each, bool) or not isinstance(each, str | int | float):
            raise LabError(where, f"'{name}' is {each!r}", "A text, a number or a list of these")
    return tuple(f"--{name}={each}" for each in values)


def _label(value: Any) -> str:
    return " + ".join(map(str, value)) if isinstance(value, list) else str(value)


def _jobs(
    path: Path,
    options: dict[str, Any],
    axes: dict[str, list[Any]],
    cases: list[dict[str, Any]],
    binary: Binary,
) -> Iterator[Job]:
    folder = path.resolve().parent
    for number, case in enumerate(cases, 1):
        own = {name: value for name, value in case.items() if name != "name"}
        labels = {"case": str(case.get("name", number))} if len(cases) > 1 or case else {}
        twice = (set(own) | set(options)) & set(axes) | set(own) & set(options)
        if twice:
            raise LabError(
                str(path),
                f"'{min(twice)}' is stated twice",
                "An option stands in one of options, axes and cases",
            )
        for values in itertools.product(*axes.values()):
            point = dict(zip(axes, values, strict=True))
            stated = {"seed": 1} | options | own | point
            told = labels | {name: _label(value) for name, value in point.items()}
            told["seed"] = _label(stated["seed"])
            yield job(folder, str(path), stated, told, binary)


def counted(stated: Mapping[str, Any]) -> dict[str, Any]:
    """The options with their warm-up, so that runs which are compared count the same time, whatever
    policy each of them has: from the start, where nothing else is stated. The windows of a sample
    have leads of their own."""
    own = "experiment" in stated or "sampled" in stated
    return ({} if own else {"warmup": "0s"}) | dict(stated)


def job(
    folder: Path,
    where: str,
    stated: Mapping[str, Any],
    labels: Mapping[str, str],
    binary: Binary,
) -> Job:
    """The run of these options of `ebb sim`, whose files are relative to the folder."""
    words: Words = ()
    for name, value in counted(stated).items():
        words += _words(where, name, value)
    files = tuple(_files(folder, where, stated))
    return Job(
        key=_key(sorted(words), files, binary),
        words=words,
        folder=str(folder),
        files=files,
        ebb_sha256=binary.sha256,
        labels=tuple(labels.items()),
    )


def _key(words: list[str], files: tuple[tuple[str, str], ...], binary: Binary) -> str:
    told = json.dumps([binary.sha256, words, sorted(files)], separators=(",", ":"))
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _check_unique(path: Path, jobs: tuple[Job, ...]) -> None:
    seen: dict[str, Job] = {}
    for job in jobs:
        other = seen.setdefault(job.key, job)
        if other is not job:
            raise LabError(
                str(path),
                f"the same run is there twice: {other.title}; {job.title}",
                "Remove a value that repeats, or a case that changes nothing",
            )


def _files(folder: Path, where: str, stated: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every file that a run reads, with its digest; profiles with what they name in turn."""
    for option in (*FILES, *NAMES_OR_FILES):
        value = stated.get(option, [])
        for name in value if isinstance(value, list) else [value]:
            path = folder / str(name)
            if option in NAMES_OR_FILES and not path.is_file() and not str(name).endswith(".toml"):
                continue
            yield from _with_digest(folder, str(name), f"{where}: {option}")


def _with_digest(folder: Path, name: str, where: str) -> Iterator[tuple[str, str]]:
    pending, seen = [name], set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        path = folder / name
        yield name, digest(path, where)
        if path.suffix == ".toml":
            pending += _named_in(path, Path(name).parent, folder)


def _named_in(path: Path, prefix: Path, folder: Path) -> list[str]:
    """Files beside a profile that it names: its base, its drives and their tables."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return []  # `ebb` refuses it, and says the line
    found: list[str] = []
    values: list[Any] = [table]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list):
            values += value
        elif isinstance(value, str) and value.endswith((".toml", ".csv")):
            found.append(str(prefix / value))
    return sorted(name for name in found if (folder / name).is_file())


def digest(path: Path, where: str) -> str:
    """SHA-256 of a file's contents; read anew only when size or time of change differ."""
    try:
        status = path.stat()
        return _digest(path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise LabError(
            where, f"{path}: {error.strerror}", "File names are relative to the grid's folder"
        ) from error


@functools.cache
def _digest(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
