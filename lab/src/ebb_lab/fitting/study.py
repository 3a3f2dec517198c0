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
from ebb_lab.fitting import (
    declaration,
    nearest,
    posterior,
    predicting,
    provenance,
    stated,
    values,
)
from ebb_lab.fitting.declaration import Declaration, Row
from ebb_lab.fitting.emulator import Array
from ebb_lab.fitting.posterior import Posterior
from ebb_lab.fitting.predicting import Joint, Predicted
from ebb_lab.fitting.provenance import Commit
from ebb_lab.fitting.variants import Variants
from ebb_lab.grid import Job


@dataclass(frozen=True)
class LeftOut:
    """A baseline row predicted by what was fitted without it."""

    row: Row
    #: Rows that were left out together with it.
    group: str
    #: By how much deviations were widened for that.
    widened: float
    #: None where the other rows cannot be met either. The range is over draws.
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
    found: Posterior
    #: Why the first of the points that are no possible server was refused; none where all are.
    refusal: str | None
    #: Values of the free parameters at the central draw, then at those that predictions ran on.
    samples: Array
    #: Each baseline row's value at these.
    fitted: Array
    #: 90 % ranges of the free parameters.
    ranges: Array
    predictions: tuple[Predicted, ...]
    joint: Joint | None
    left_out: tuple[LeftOut, ...]


def run(
    path: Path,
    folder: Path,
    *,
    client: Any = None,
    workers: int | None = None,
    progress: bool = True,
) -> Fit:
    """Runs a fit, or what is left of it. `UnmetError` where the baseline cannot be met."""
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
        if found.refused == len(found.shares):
            raise self.hopeless(found.refused)
        if found.hopeless:
            raise nearest.unmet(
                declared, self.ebb, found, self.values_of(found.shares), refusal, self.folder
            )
        shares = self.drawn(found)
        fitted = self.each(declared.baseline, shares, declared.seeds, "draws").mean(axis=2)
        sound = np.isfinite(fitted).all(axis=1)
        shares, fitted = shares[sound], fitted[sound]
        predictions, joint = self.predicted(shares)
        ends = np.quantile(found.cloud, (posterior.LOW, posterior.HIGH), axis=0)
        return Fit(
            declared=declared,
            ebb=self.ebb,
            commit=provenance.commit(list(self.files())),
            found=found,
            refusal=refusal,
            samples=self.values_of(shares),
            fitted=fitted,
            ranges=self.values_of(ends).T,
            predictions=predictions,
            joint=joint,
            left_out=tuple(self.left_out()),
        )

    def search(self, rows: Sequence[Row], what: str) -> Posterior:
        """How probable each place is, given these rows."""
        declared = self.declared

        def measure(shares: Array) -> Array:
            return self.each(rows, shares, declared.seeds, what)

        paper = np.array([row.paper for row in rows], dtype=np.float64)
        stated = np.array([row.deviation for row in rows])
        if not declared.free:
            # Nothing is fitted: the profile as it is, however far off.
            shares = np.zeros((1, 0))
            means = measure(shares).mean(axis=2)
            return Posterior(shares, means, stated, np.zeros_like(stated), 1.0, shares)
        return posterior.search(
            measure,
            self.snapped,
            paper,
            stated,
            dimensions=len(declared.free),
            seed=declared.seed,
            points=declared.points,
        )

    def drawn(self, found: Posterior) -> Array:
        """The central draw and those that predictions run on."""
        if not self.declared.free:
            return found.cloud
        others = found.drawn(self.declared.forecast, self.declared.seed)
        return np.vstack([found.central, others])

    def predicted(self, shares: Array) -> tuple[tuple[Predicted, ...], Joint | None]:
        """The judged policy's rows at the draws, the first of which is the central one."""
        declared = self.declared
        rows = declared.predictions
        if not rows:
            return (), None
        (central,) = self.each(rows, shares[:1], declared.prediction_seeds, "seeds")
        if np.isnan(central).any():
            raise self.refusals[-1]
        if not declared.free:
            # The profile as it is has no draws but its seeds.
            shares = np.repeat(shares, len(central[0]), axis=0)
            values = central.T
        else:
            shares = shares[1:]
            first = declared.prediction_seeds[0]
            own = [[first + at] for at in range(len(shares))]
            values = self.measured(rows, shares, own, "predictions")[:, :, 0]
            sound = np.isfinite(values).all(axis=1)
            shares, values = shares[sound], values[sound]
        samples = self.values_of(shares)
        return tuple(
            predicting.judge(row, declared.free, samples, values[:, index], central[index])
            for index, row in enumerate(rows)
        ), predicting.judge_jointly(rows, values, central)

    def left_out(self) -> Iterator[LeftOut]:
        """Every baseline row, predicted by what was fitted without it or its figure."""
        declared = self.declared
        if declared.leave_out is None:
            return
        for group in dict.fromkeys(map(self.group, declared.baseline)):
            rows = [row for row in declared.baseline if self.group(row) != group]
            out = [row for row in declared.baseline if self.group(row) == group]
            found = self.search(rows, f"without {group}")
            if found.hopeless or not len(found.cloud):
                yield from (LeftOut(row, group, found.widened, None, None) for row in out)
                continue
            shares = self.drawn(found)[-declared.forecast :]
            means = self.each(out, shares, declared.seeds, f"without {group}").mean(axis=2)
            means = means[~np.isnan(means).any(axis=1)]
            for row, at in zip(out, means.T, strict=True):
                told = (float(at.min()), float(at.max())) if len(at) else None
                mean = float(at.mean()) if told else None
                yield LeftOut(row, group, found.widened, mean, told)

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

    def each(self, rows: Sequence[Row], shares: Array, seeds: Sequence[int], what: str) -> Array:
        """Each row's value, with the same seeds at all points."""
        return self.measured(rows, shares, [seeds] * len(shares), what)

    def measured(
        self, rows: Sequence[Row], shares: Array, seeds: Sequence[Sequence[int]], what: str
    ) -> Array:
        """Each row's value, by point, row and seed of the point; NaN at points that are refused,
        because `ebb` says that they are no possible server or because a value is none there."""
        points = self.values_of(shares)
        names = dict.fromkeys(row.run for row in rows)
        jobs: dict[tuple[int, str, int], Job] = {}
        for at, point in enumerate(points):
            for name in names:
                wanted = {policy for row in rows if row.run == name for policy in row.policies}
                for seed in seeds[at]:
                    jobs[at, name, seed] = self.job(name, point, seed, wanted)
        results = self.bench.outcomes(list(jobs.values()), str(self.declared.path), what)
        found = np.full((len(points), len(rows), len(seeds[0])), np.nan)
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
                    found[at] = self.point(rows, seeds[at], fields, at)
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
        numbers = self.declared.path.with_name(stated.FILE)
        if numbers.is_file():
            yield numbers
        names = {
            str(name)
            for run in self.variants.runs.values()
            for option in (*grid.FILES, *grid.NAMES_OR_FILES)
            for name in _listed(run.get(option))
        }
        yield from (Path(name) for name in sorted(names) if Path(name).is_file())


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
