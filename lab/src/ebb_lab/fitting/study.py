"""A fit from its declaration to its verdicts: search, predictions, leaving out, files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ebb_lab import bench, binary, grid
from ebb_lab.bench import Bench
from ebb_lab.binary import Binary
from ebb_lab.errors import LabError, RefusedError
from ebb_lab.fitting import declaration, nearest, predicting, provenance, region, values
from ebb_lab.fitting.declaration import Declaration, Row
from ebb_lab.fitting.predicting import Predicted
from ebb_lab.fitting.provenance import Commit
from ebb_lab.fitting.region import Array, Region
from ebb_lab.fitting.variants import Variants
from ebb_lab.grid import Job


@dataclass(frozen=True)
class LeftOut:
    """A baseline row predicted by a region that was fitted without it."""

    row: Row
    #: Rows that were left out together with it.
    group: str
    accepted: int
    #: By how much uncertainties were widened for that.
    widened: float
    #: None where nothing was accepted without it either.
    mean: float | None
    range: tuple[float, float] | None

    @property
    def error(self) -> float | None:
        """Of the mean, as a share of the published number."""
        return self.row.error_of(self.mean)


@dataclass(frozen=True)
class Fit:
    """All that a fit came to."""

    declared: Declaration
    ebb: Binary
    commit: Commit
    found: Region
    #: Why the first of the points that are no possible server was refused; none where all are.
    refusal: str | None
    #: Values of the free parameters at the accepted samples, the central one first.
    samples: Array
    #: Each baseline row's value at these.
    fitted: Array
    #: How many of these the predictions ran on.
    forecast: int
    predictions: tuple[Predicted, ...]
    left_out: tuple[LeftOut, ...]


def run(
    path: Path,
    folder: Path,
    *,
    client: Any = None,
    workers: int | None = None,
    progress: bool = True,
) -> Fit:
    """Runs a fit, or what is left of it. `UnmetError` where no point meets the baseline."""
    declared = declaration.read(path)
    ebb = binary.find()
    with bench.opened(folder, client, workers, progress) as runs:
        work = _Work(declared, ebb, Variants(declared, folder), runs, folder)
        return work.fit()


class _Work:
    """Values of rows at points, by simulation."""

    def __init__(
        self, declared: Declaration, ebb: Binary, variants: Variants, runs: Bench, folder: Path
    ) -> None:
        self.declared, self.ebb, self.variants = declared, ebb, variants
        self.bench, self.folder = runs, folder
        #: Why points were refused, the first of the whole fit's search first.
        self.refusals: list[LabError] = []

    def fit(self) -> Fit:
        declared = self.declared
        found = self.search(declared.baseline, "fit")
        refusal = str(self.refusals[0]) if self.refusals else None
        accepted = found.accepted
        if found.refused == len(found.shares):
            raise self.hopeless(found.refused)
        if not len(accepted):
            raise nearest.unmet(
                declared, self.ebb, found, self.values_of(found.shares), refusal, self.folder
            )
        first = region.central(found.shares[accepted])
        order = np.concatenate([accepted[[first]], np.delete(accepted, first)])
        shares = found.shares[order]
        chosen = shares[:1]
        if len(shares) > 1:
            others = region.spread_out(shares[1:], declared.forecast - 1, chosen)
            chosen = np.vstack([chosen, others])
        return Fit(
            declared=declared,
            ebb=self.ebb,
            commit=provenance.commit(list(self.files())),
            found=found,
            refusal=refusal,
            samples=self.values_of(shares),
            fitted=found.values[order],
            forecast=len(chosen),
            predictions=tuple(self.predicted(chosen)),
            left_out=tuple(self.left_out()),
        )

    def search(self, rows: Sequence[Row], what: str) -> Region:
        """The region where these rows come out."""
        declared = self.declared
        seeds = declared.seeds

        def measure(shares: Array) -> Array:
            means: Array = self.measured(rows, shares, seeds, what).mean(axis=2)
            return means

        if not declared.free:
            # Nothing is fitted: the profile as it is, however far off.
            shares = np.zeros((1, 0))
            return Region(shares, measure(shares), np.zeros(1))
        return region.search(
            measure,
            self.snapped,
            np.array([row.paper for row in rows], dtype=np.float64),
            np.array([row.uncertainty for row in rows]),
            dimensions=len(declared.free),
            seed=declared.seed,
            points=declared.points,
            accepted=declared.accepted,
            widen=declared.widen,
        )

    def predicted(self, shares: Array) -> Iterator[Predicted]:
        """The judged policy's rows at these points."""
        declared = self.declared
        if not declared.predictions:
            return
        found = self.measured(
            declared.predictions, shares, declared.prediction_seeds, "predictions"
        )
        sound = np.isfinite(found.sum(axis=(1, 2)))
        if not sound[0]:
            raise self.refusals[-1]
        found, shares = found[sound], shares[sound]
        samples = self.values_of(shares)
        for index, row in enumerate(declared.predictions):
            yield predicting.judge(row, declared.free, samples, found[:, index, :])

    def left_out(self) -> Iterator[LeftOut]:
        """Every baseline row, predicted by what was fitted without it or its figure.

        Each search is of its own: points of the whole baseline's would favour those that meet
        the row that is left out.
        """
        declared = self.declared
        if declared.leave_out is None:
            return
        for group in dict.fromkeys(map(self.group, declared.baseline)):
            rows = [row for row in declared.baseline if self.group(row) != group]
            out = [row for row in declared.baseline if self.group(row) == group]
            found = self.search(rows, f"without {group}")
            shares = found.shares[found.accepted]
            if not len(shares):
                yield from (LeftOut(row, group, 0, 1.0, None, None) for row in out)
                continue
            means = self.measured(out, shares, declared.seeds, f"without {group}").mean(axis=2)
            means = means[~np.isnan(means).any(axis=1)]
            for row, at in zip(out, means.T, strict=True):
                told = (float(at.min()), float(at.max())) if len(at) else None
                mean = float(at.mean()) if told else None
                yield LeftOut(row, group, len(at), found.widened, mean, told)

    def group(self, row: Row) -> str:
        """What a row is left out with."""
        return row.name if self.declared.leave_out == "row" else row.source

    def snapped(self, shares: Array) -> Array:
        """Shares where whole parameters are whole."""
        snapped = shares.copy()
        for index, free in enumerate(self.declared.free):
            if free.whole:
                steps = free.high - free.low + 1
                snapped[:, index] = (np.minimum(shares[:, index] * steps, steps - 1) // 1) + 0.5
                snapped[:, index] /= steps
        return snapped

    def values_of(self, shares: Array) -> Array:
        """Values of the free parameters at these shares of their ranges."""
        pairs = list(zip(self.declared.free, range(shares.shape[1]), strict=True))
        return np.array([[free.at(float(row[index])) for free, index in pairs] for row in shares])

    def measured(
        self, rows: Sequence[Row], shares: Array, seeds: Sequence[int], what: str
    ) -> Array:
        """Each row's value, by point, row and seed; NaN at points that are refused, because `ebb`
        says that they are no possible server or because a value is none there."""
        points = self.values_of(shares)
        names = dict.fromkeys(row.run for row in rows)
        jobs: dict[tuple[int, str, int], Job] = {}
        for at, point in enumerate(points):
            for name in names:
                wanted = {policy for row in rows if row.run == name for policy in row.policies}
                for seed in seeds:
                    jobs[at, name, seed] = self.job(name, point, seed, wanted)
        results = self.bench.outcomes(list(jobs.values()), str(self.declared.path), what)
        found = np.full((len(points), len(rows), len(seeds)), np.nan)
        refused: dict[int, LabError] = {}
        fields: dict[tuple[int, str, int, str], dict[str, Any]] = {}
        for (at, name, seed), result in zip(jobs, results, strict=True):
            if isinstance(result, RefusedError):
                refused.setdefault(at, result)
                continue
            for run in result["runs"]:
                fields[at, name, seed, run["policy"]] = values.row(run)
        for at in range(len(points)):
            if at not in refused:
                try:
                    found[at] = self.point(rows, seeds, fields, at)
                except LabError as error:
                    refused[at] = error
        self.refusals += [refused[at] for at in sorted(refused)]
        if len(refused) == len(points):
            self.check_files(names)
        return found

    def point(
        self,
        rows: Sequence[Row],
        seeds: Sequence[int],
        fields: Mapping[tuple[int, str, int, str], Mapping[str, Any]],
        at: int,
    ) -> Array:
        """The rows' values at one point, by row and seed."""
        found = np.empty((len(rows), len(seeds)))
        for index, row in enumerate(rows):
            where = f"{self.declared.path}: '{row}'"
            for number, seed in enumerate(seeds):
                value = values.evaluate(where, row.value, fields[at, row.run, seed, row.of])
                if row.over:
                    over = fields[at, row.run, seed, row.over]
                    value /= values.divisor(where, row.value, over)
                found[index, number] = value / row.scale
        return found

    def hopeless(self, points: int) -> LabError:
        """Why no point is a possible server."""
        first = self.refusals[0]
        if not isinstance(first, RefusedError):
            return first
        return LabError(
            first.where,
            f"all {points} points are refused, the first: {first.what}",
            "Without the free parameters it runs: narrow a range, or correct 'set' or 'unit'",
        )

    def check_files(self, names: Iterable[str]) -> None:
        """`LabError`, with file and line, where it is the declared files that do not run."""
        middle = self.values_of(np.full((1, len(self.declared.free)), 0.5))[0].tolist()
        where = str(self.declared.path)
        plain = [
            grid.job(
                self.folder,
                where,
                self.variants.unchanged(name, middle) | {"seed": self.declared.seeds[0]},
                {"run": name},
                self.ebb,
            )
            for name in names
        ]
        self.bench.results(plain, where, "declared files")

    def job(self, name: str, point: Array, seed: int, wanted: set[str]) -> Job:
        """A run at a point; only of policies that rows read, and the reference."""
        options = self.variants.options(name, point.tolist())
        policies = options["policy"]
        options |= {
            "policy": [each for each in policies if each == policies[0] or each in wanted],
            "seed": seed,
        }
        labels = {"run": name, "seed": str(seed)} | {
            free.name: str(free.written(value))
            for free, value in zip(self.declared.free, point.tolist(), strict=True)
        }
        return grid.job(self.folder, str(self.declared.path), options, labels, self.ebb)

    def files(self) -> Iterator[Path]:
        """The declaration and the files beside it that its runs read."""
        yield self.declared.path
        yield from self.declared.tables
        names = {
            str(name)
            for run in self.variants.runs.values()
            for option in (*grid.FILES, *grid.NAMES_OR_FILES)
            for name in _listed(run.get(option))
        }
        yield from (Path(name) for name in sorted(names) if Path(name).is_file())


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
