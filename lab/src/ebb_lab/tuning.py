"""`ebb-lab tune`: parameters of a policy searched on some loads and judged on others.

Optuna proposes parameters; each proposal runs on every training load and is scored by its ratio
to the policy's defaults there, the geometric mean over loads. What scores best is then compared
with the defaults on held-out loads and seeds that the search never saw, and only that is the
verdict. Runs are kept in a journal by their keys: started again, a study repeats its proposals
from it, bit for bit, and goes on where it was.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ebb_lab import bench, binary, fields, grid, statistics, text, toml
from ebb_lab.bench import Bench
from ebb_lab.binary import Binary
from ebb_lab.errors import LabError, did_you_mean
from ebb_lab.grid import Job

#: Proposals made before any of them is scored: they run at once, and the study does not depend
#: on how many workers there are.
BATCH = 4

KEYS = (
    *("name", "policy", "objectives", "trials", "seed", "parameters", "options", "train"),
    *("held-out", "train-seeds", "held-out-seeds"),
)


@dataclass(frozen=True)
class Objective:
    """A field of the results that should become small, or large."""

    field: str
    largest: bool


@dataclass(frozen=True)
class Study:
    """What a study's TOML file states."""

    path: Path
    name: str
    policy: str
    objectives: tuple[Objective, ...]
    trials: int
    seed: int
    parameters: dict[str, tuple[float, float]]
    train: tuple[dict[str, Any], ...]
    held_out: tuple[dict[str, Any], ...]
    train_seeds: tuple[int, ...]
    held_out_seeds: tuple[int, ...]


@dataclass(frozen=True)
class Trial:
    """A proposal and its score for each objective: below 1 is better than the defaults."""

    parameters: dict[str, float]
    scores: tuple[float, ...]


@dataclass(frozen=True)
class Judged:
    """One objective on the held-out loads: ratios tuned / default, below 1 is better.

    `ratio` is the median over seeds of the geometric mean over loads, with its interval;
    `by_load` the same of each load alone.
    """

    field: str
    ratio: float
    low: float
    high: float
    by_load: tuple[tuple[str, float, float, float], ...]

    @property
    def verdict(self) -> str:
        """What the interval shows."""
        if self.high < 1:
            return "better"
        return "worse" if self.low > 1 else "no difference shown"


@dataclass(frozen=True)
class Result:
    """A study's outcome. `front` has the proposals that no other beats in all objectives."""

    name: str
    policy: str
    tuned: str
    trials: tuple[Trial, ...]
    front: tuple[Trial, ...]
    best: Trial
    judged: tuple[Judged, ...]
    conclusion: str
    file: str


def tune(
    path: Path,
    folder: Path,
    *,
    client: Any = None,
    workers: int | None = None,
    progress: bool = True,
) -> Result:
    """Runs a study, or what is left of it, and writes `tuned.toml` for `ebb sim --experiment`."""
    ebb = binary.find()
    study = read(path)
    with bench.opened(folder, client, workers, progress) as runs:
        loads = _Loads(study, ebb, runs)
        trials, front = _search(loads)
        # Of a front, the point that gains most in all objectives together.
        best = min(front, key=lambda trial: math.prod(trial.scores))
        judged = _judge(loads, best)
    conclusion = _conclusion(study, judged)
    tuned = stated(study.policy, best.parameters)
    file = folder / "tuned.toml"
    file.write_text(_experiment(study, tuned, conclusion), encoding="utf-8")
    return Result(
        name=study.name,
        policy=study.policy,
        tuned=tuned,
        trials=tuple(trials),
        front=tuple(front),
        best=best,
        judged=judged,
        conclusion=conclusion,
        file=str(file),
    )


def stated(policy: str, parameters: Mapping[str, float]) -> str:
    """A policy with its parameters, as `--policy` takes it."""
    return f"{policy}({', '.join(f'{name}={value:.6g}' for name, value in parameters.items())})"


def read(path: Path) -> Study:
    """A study from its TOML file, checked."""
    _, table = toml.read(path, "A study", KEYS)
    for key in ("policy", "objectives", "parameters", "train", "held-out"):
        if not table.get(key):
            raise LabError(f"{path}: {key}", "is not stated", "docs/lab.md has an example")
    options = table.get("options", {})
    train, held_out = (
        tuple(_load(path, key, load, options) for load in table[key])
        for key in ("train", "held-out")
    )
    names = [load["name"] for load in (*train, *held_out)]
    for name in names:
        if names.count(name) > 1:
            raise LabError(f"{path}: {name}", "two loads have this name", "State a name for each")
    for load in held_out:
        if any(_without_name(load) == _without_name(other) for other in train):
            raise LabError(
                f"{path}: held-out",
                f"{load['name']} is a training load too",
                "Judge by loads that the search does not see",
            )
    study = Study(
        path=path,
        name=str(table.get("name", path.stem)),
        policy=str(table["policy"]),
        objectives=tuple(_objective(path, each) for each in table["objectives"]),
        trials=toml.whole(str(path), table, "trials", 60),
        seed=toml.whole(str(path), table, "seed", 1),
        parameters={name: _bounds(path, name, b) for name, b in table["parameters"].items()},
        train=train,
        held_out=held_out,
        train_seeds=tuple(range(1, 1 + toml.whole(str(path), table, "train-seeds", 2))),
        held_out_seeds=tuple(
            range(1001, 1001 + toml.whole(str(path), table, "held-out-seeds", 10))
        ),
    )
    if len(study.held_out_seeds) < statistics.MIN_REPEATS:
        raise LabError(
            f"{path}: held-out-seeds", "are too few", f"At least {statistics.MIN_REPEATS}"
        )
    return study


def _without_name(load: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in load.items() if key != "name"}


def _load(path: Path, key: str, load: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(load, dict) or not load:
        raise LabError(f"{path}: {key}", "is no list of tables", f"Write [[{key}]]")
    for own in ("policy", "seed"):
        if own in load or own in options:
            raise LabError(f"{path}: {key}", f"'{own}' is the study's own", "Leave it out there")
    name = load.get("name") or load.get("workload") or load.get("trace")
    return dict(options) | load | {"name": str(name)}


def _objective(path: Path, each: Any) -> Objective:
    if isinstance(each, dict) and len(each) == 1:
        ((way, field),) = each.items()
        if way in ("minimise", "maximise"):
            return Objective(str(field), way == "maximise")
    raise LabError(
        f"{path}: objectives",
        f"{each!r} is none",
        'Such as objectives = [{ maximise = "iops" }, { minimise = "mean_watts" }]',
    )


def _bounds(path: Path, name: str, bounds: Any) -> tuple[float, float]:
    if isinstance(bounds, dict) and set(bounds) == {"low", "high"}:
        low, high = bounds["low"], bounds["high"]
        if isinstance(low, int | float) and isinstance(high, int | float) and low < high:
            return float(low), float(high)
    raise LabError(f"{path}: parameters.{name}", "no range", "Such as { low = 0.0, high = 2.0 }")


class _Loads:
    """Runs policies on loads; knows what the journal has already."""

    def __init__(self, study: Study, ebb: Binary, bench: Bench) -> None:
        self.study, self.ebb, self.bench = study, ebb, bench

    def measure(
        self, policies: Sequence[str], loads: Sequence[dict[str, Any]], seeds: Sequence[int]
    ) -> dict[tuple[str, str, int], dict[str, Any]]:
        """The results of each policy on each load with each seed, as rows of fields."""
        jobs = {
            (policy, load["name"], seed): self._job(policy, load, seed)
            for policy in policies
            for load in loads
            for seed in seeds
        }
        results = self.bench.results(list(jobs.values()), str(self.study.path))
        return {
            where: fields.flatten(result["runs"][0])
            for where, result in zip(jobs, results, strict=True)
        }

    def _job(self, policy: str, load: dict[str, Any], seed: int) -> Job:
        options = _without_name(load) | {"policy": policy, "seed": seed}
        labels = {"load": load["name"], "policy": policy, "seed": str(seed)}
        return grid.job(
            self.study.path.resolve().parent, str(self.study.path), options, labels, self.ebb
        )

    def ratios(
        self, policy: str, loads: Sequence[dict[str, Any]], seeds: Sequence[int]
    ) -> Iterator[tuple[Objective, dict[tuple[str, int], float]]]:
        """For each objective, tuned against default by load and seed; below 1 is better."""
        found = self.measure([self.study.policy, policy], loads, seeds)
        for objective in self.study.objectives:
            ratios = {}
            for load in loads:
                for seed in seeds:
                    where = (load["name"], seed)
                    base = self._value(found[self.study.policy, *where], objective, *where)
                    other = self._value(found[policy, *where], objective, *where)
                    ratios[where] = base / other if objective.largest else other / base
            yield objective, ratios

    def _value(self, row: dict[str, Any], objective: Objective, load: str, seed: int) -> float:
        value = row.get(objective.field)
        where = f"{self.study.path}: load {load}, seed {seed}"
        if objective.field not in row:
            raise LabError(
                where, f"no field '{objective.field}'", did_you_mean(objective.field, row)
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise LabError(
                where,
                f"{objective.field} is {value}, of which no ratio says anything",
                "Another one",
            )
        return float(value)


def _search(loads: _Loads) -> tuple[list[Trial], list[Trial]]:
    """All proposals in order, and those that no other beats."""
    try:
        import optuna
    except ImportError as error:
        raise LabError(
            "ebb-lab tune", "Optuna is not installed", "pip install 'ebb-lab[tune]'"
        ) from error
    study = loads.study
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    search = optuna.create_study(
        directions=["minimize"] * len(study.objectives),
        sampler=optuna.samplers.TPESampler(seed=study.seed),
    )
    trials: list[Trial] = []
    while len(trials) < study.trials:
        asked = [search.ask() for _ in range(min(BATCH, study.trials - len(trials)))]
        proposals = [
            {name: trial.suggest_float(name, *bounds) for name, bounds in study.parameters.items()}
            for trial in asked
        ]
        policies = [stated(study.policy, proposal) for proposal in proposals]
        # All at once, so that all workers have something to do.
        loads.measure([study.policy, *policies], study.train, study.train_seeds)
        for trial, proposal, policy in zip(asked, proposals, policies, strict=True):
            scores = tuple(
                _geometric(list(ratios.values()))
                for _, ratios in loads.ratios(policy, study.train, study.train_seeds)
            )
            search.tell(trial, list(scores))
            trials.append(Trial(proposal, scores))
    return trials, [trials[trial.number] for trial in search.best_trials]


def _judge(loads: _Loads, best: Trial) -> tuple[Judged, ...]:
    study = loads.study
    tuned = stated(study.policy, best.parameters)
    judged = []
    for objective, ratios in loads.ratios(tuned, study.held_out, study.held_out_seeds):
        names = [load["name"] for load in study.held_out]
        together = [_geometric([ratios[name, s] for name in names]) for s in study.held_out_seeds]
        by_load = []
        for name in names:
            alone = [ratios[name, seed] for seed in study.held_out_seeds]
            by_load.append((name, float(np.median(alone)), *statistics.median_interval(alone)))
        low, high = statistics.median_interval(together)
        judged.append(
            Judged(objective.field, float(np.median(together)), low, high, tuple(by_load))
        )
    return tuple(judged)


def _geometric(ratios: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def _conclusion(study: Study, judged: tuple[Judged, ...]) -> str:
    told = ", ".join(
        f"{each.field} {each.verdict} ({each.ratio:.4f}, {each.low:.4f} … {each.high:.4f} times "
        "as bad)"
        for each in judged
    )
    verdicts = {each.verdict for each in judged}
    beats = "better" in verdicts and "worse" not in verdicts
    return (
        f"on held-out loads the tuned {study.policy} {'beats' if beats else 'does not beat'} its "
        f"defaults: {told}"
    )


def _experiment(study: Study, tuned: str, conclusion: str) -> str:
    """For `ebb sim --experiment`: the defaults against the tuned on the first held-out load."""
    options = _without_name(study.held_out[0]) | {
        "policy": ["native", study.policy, tuned],
        "seed": study.held_out_seeds[0],
    }
    return toml.document(
        grid.counted(options), (f"Study '{study.name}', simulated.", f"{conclusion}.")
    )


def tell(result: Result) -> str:
    """The study for people."""
    rows = [
        (f"{each.field}, {load}", f"{ratio:.4f}", f"{low:.4f} … {high:.4f}")
        for each in result.judged
        for load, ratio, low, high in (
            *each.by_load,
            ("all together", each.ratio, each.low, each.high),
        )
    ]
    best = ", ".join(f"{score:.4f}" for score in result.best.scores)
    return "\n".join(
        [
            f"Simulated: {result.conclusion}.",
            f"  {result.tuned}: {best} on the training loads, best of {len(result.trials)} trials"
            + (f", {len(result.front)} on the Pareto front" if len(result.judged) > 1 else ""),
            text.table(("held out", "tuned / default", "95% interval"), rows),
            "  Below 1 is better, whether the objective is to be small or large.",
            f"  ebb sim --experiment {result.file}",
        ]
    )


def as_json(result: Result) -> dict[str, Any]:
    """What `--json` prints (docs/json-schema/lab-tune-1.json)."""
    told = {"schema": 1, "simulated": True} | dataclasses.asdict(result)
    for each, judged in zip(told["judged"], result.judged, strict=True):
        each["verdict"] = judged.verdict
    return told
