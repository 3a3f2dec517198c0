"""One point of the search as options of `ebb sim`: values in options, profile and workload.

A profile or workload that a parameter changes is written as a file of its own into the results'
folder, named by a digest of its contents, where it also serves whoever repeats a run by hand.
"""

import copy
import hashlib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ebb_lab import binary, toml
from ebb_lab.errors import LabError, did_you_mean
from ebb_lab.fitting.declaration import Declaration, Target
from ebb_lab.grid import FILES, NAMES_OR_FILES

#: Where the files of points are, in the results' folder.
INPUTS = "inputs"


class Variants:
    """Options of a declaration's runs at points of the search."""

    def __init__(self, declared: Declaration, folder: Path) -> None:
        self.declared, self.folder = declared, folder
        self.runs = {
            name: self._found({key: value for key, value in run.items() if ":" not in key})
            for name, run in declared.runs.items()
        }
        #: What each run states of its profile and workload, whatever the point.
        self.stated = {
            name: [(Target.of(key), value) for key, value in run.items() if ":" in key]
            for name, run in declared.runs.items()
        }
        self._documents: dict[tuple[str, str], dict[str, Any]] = {}
        for free in declared.free:
            for target in free.targets:
                self._check(f"free.{free.name}", target, self.runs)
        for run, stated in self.stated.items():
            for target, _ in stated:
                self._check(f"runs.{run}", target, [run])

    def options(self, run: str, point: Sequence[float]) -> dict[str, Any]:
        """A run's options at a point; files of it are there when this returns."""
        options = self.unchanged(run, point)
        for place in NAMES_OR_FILES:
            if document := self.document(place, run, point):
                options[place] = self._write(place, document)
        return options

    def unchanged(self, run: str, point: Sequence[float]) -> dict[str, Any]:
        """The same with profile and workload as the declaration names them."""
        options = dict(self.runs[run])
        for free, value in zip(self.declared.free, point, strict=True):
            for target in free.targets:
                if target.place == "option":
                    options[target.path[0]] = free.written(value)
        return options

    def document(self, place: str, run: str, point: Sequence[float]) -> dict[str, Any] | None:
        """The run's profile or workload at a point; None where no parameter changes it."""
        stated = [*self.stated[run]]
        for free, value in zip(self.declared.free, point, strict=True):
            stated += [(target, free.written(value)) for target in free.targets]
        changes = [(target.path, value) for target, value in stated if target.place == place]
        document = copy.deepcopy(self._document(place, run)) if changes else None
        if document is None:
            return None
        if place == "workload":
            changes = [change for change in changes if _holds(document, change[0])]
        below = self._below(document) if place == "profile" else None
        for path, value in changes:
            where = f"{self.declared.path}: {place}:{'.'.join(path)}"
            self._put(where, document, path, value, below)
        return document if changes else None

    def _put(self, where: str, table: Any, path: Sequence[str], value: Any, below: Any) -> None:
        """Writes a value; `below` is what the base of the profile has in this place."""
        name, *rest = path
        found, under = _step(table, name), _step(below, name)
        if isinstance(table, list) and found is None:
            raise LabError(where, f"there is no '{name}'", did_you_mean(name, _names(table)))
        if not isinstance(table, dict if not rest else dict | list):
            raise LabError(where, f"'{name}' would stand in {table!r}", "A key of a table")
        if not rest:
            table[name] = value
            return
        if found is None:
            # Tables are joined with the base's; what is none replaces it as a whole.
            found = {} if under is None or isinstance(under, dict) else copy.deepcopy(under)
            table[name] = found
        if isinstance(found, str):
            # It goes on in a file or a shipped model that is named here, such as the drives'.
            document = self._model(where, found)
            self._put(where, document, rest, value, None)
            table[name] = str((self.folder / self._write(name, document)).resolve())
            return
        self._put(where, found, rest, value, under)

    def _model(self, where: str, name: str) -> dict[str, Any]:
        if name.endswith(".toml"):
            return _read(Path(name))
        text = binary.shipped(name)
        if text is None:
            raise LabError(where, f"'{name}' is neither a file nor ships", "See 'ebb profile'")
        return tomllib.loads(text)

    def _below(self, document: Mapping[str, Any], above: Sequence[str] = ()) -> dict[str, Any]:
        """What the bases of a profile state; nothing where `ebb` will refuse them."""
        base = document.get("base")
        if not isinstance(base, str) or base in above:
            return {}
        text = binary.shipped(base)
        if text is not None:
            table = tomllib.loads(text)
        elif Path(base).is_file():
            table = _read(Path(base))
        else:
            return {}
        return _joined(self._below(table, [*above, base]), table)

    def _found(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """The run's options with names of files that hold in any folder."""
        options = dict(run)
        for option in (*FILES, *NAMES_OR_FILES):
            value = options.get(option)
            if isinstance(value, list):
                options[option] = [self._absolute(str(each)) for each in value]
            elif value is not None:
                options[option] = self._absolute(str(value))
        return options

    def _absolute(self, name: str) -> str:
        path = self.declared.folder / name
        return str(path) if path.is_file() or name.endswith(".toml") else name

    def _document(self, place: str, run: str) -> dict[str, Any] | None:
        """What a parameter changes: a file's table, or one that rests on a shipped profile."""
        name = str(self.runs[run].get(place, "asg-1115s" if place == "profile" else ""))
        if (place, name) not in self._documents:
            path = Path(name)
            if path.is_file():
                table = _read(path)
            elif place == "profile":
                table = {
                    "name": f"{name}-fitted",
                    "summary": f"{name} with fitted parameters of '{self.declared.name}'",
                    "base": name,
                }
            else:
                table = {}
            self._documents[place, name] = table
        return self._documents[place, name] or None

    def _write(self, place: str, document: Mapping[str, Any]) -> str:
        text = toml.document(document)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        name = f"{INPUTS}/{place}-{digest}.toml"
        path = self.folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
        return name

    def _check(self, of: str, target: Target, runs: Iterable[str]) -> None:
        """That what is written has somewhere to go in one of the runs."""
        if target.place == "workload":
            documents = [self._document("workload", run) or {} for run in runs]
            if not any(_holds(document, target.path) for document in documents):
                near = sorted({path for document in documents for path in _paths(document)})
                raise LabError(
                    f"{self.declared.path}: {of}",
                    f"no run's workload file has '{'.'.join(target.path)}'",
                    did_you_mean(".".join(target.path), near),
                )


def _read(path: Path) -> dict[str, Any]:
    """A file's table; files that it names beside it are named in full."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabError(
            str(path), f"{error.strerror}", "Name a file beside the one it is in"
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LabError(str(path), str(error), "ebb sim would refuse it too") from error

    def named(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: named(each) for name, each in value.items()}
        if isinstance(value, list):
            return [named(each) for each in value]
        if isinstance(value, str) and value.endswith((".toml", ".csv", ".csv.gz")):
            beside = path.parent / value
            return str(beside) if beside.is_file() else value
        return value

    found: dict[str, Any] = named(table)
    return found


def _joined(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """A profile over its base, as the twin joins them: tables key by key, the rest as a whole."""
    joined = dict(below)
    for name, value in above.items():
        under = joined.get(name)
        both = isinstance(value, dict) and isinstance(under, dict)
        joined[name] = _joined(under or {}, value) if both else value
    return joined


def _names(table: list[Any]) -> list[str]:
    """What entries of a list are called."""
    return [str(each.get("name") or each.get("role")) for each in table if isinstance(each, dict)]


def _step(table: Any, name: str) -> Any:
    """What a name leads to: a key of a table, or the entry of a list that has this name."""
    if isinstance(table, dict):
        return table.get(name)
    if isinstance(table, list):
        for each in table:
            if isinstance(each, dict) and name in (each.get("name"), each.get("role")):
                return each
    return None


def _holds(table: Any, path: Sequence[str]) -> bool:
    for name in path:
        table = _step(table, name)
    return table is not None


def _paths(table: Any, prefix: str = "") -> list[str]:
    """Every place of a document that a parameter can name."""
    if isinstance(table, dict):
        return [p for name, each in table.items() for p in _paths(each, f"{prefix}.{name}")]
    if isinstance(table, list) and table and all(isinstance(each, dict) for each in table):
        return [
            p
            for name, each in zip(_names(table), table, strict=True)
            for p in _paths(each, f"{prefix}.{name}")
        ]
    return [prefix.removeprefix(".")]
