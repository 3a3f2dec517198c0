"""What a fit leaves behind: draws as Parquet, the central one as files that `ebb` loads, JSON."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import ebb_lab
from ebb_lab import grid, toml
from ebb_lab.fitting import nearest
from ebb_lab.fitting.declaration import Declaration, Row
from ebb_lab.fitting.nearest import Nearest
from ebb_lab.fitting.study import Fit
from ebb_lab.fitting.variants import Variants

SAMPLES, FIT, CENTRAL = "samples.parquet", "fit.json", "central.toml"
#: Of the nearest point where none meets the baseline.
NOT_ACCEPTED = "not-accepted.toml"


def write(fit: Fit, folder: Path) -> None:
    """Writes `samples.parquet`, `fit.json`, `central.toml` and what the last one names."""
    _remove(folder, NOT_ACCEPTED, nearest.TABLE)
    _samples(fit, folder / SAMPLES)
    _central(fit, folder)
    told = json.dumps(as_json(fit, folder), ensure_ascii=False, allow_nan=False, indent=1)
    (folder / FIT).write_text(told + "\n", encoding="utf-8")


def command(fit: Fit, folder: Path) -> str:
    """What repeats the fit."""
    return _command(fit.declared, folder)


def write_nearest(found: Nearest, folder: Path) -> None:
    """Writes `not-accepted.csv`, and the nearest point as `not-accepted.toml`; what an earlier fit
    left there goes."""
    _remove(folder, CENTRAL, SAMPLES, FIT)
    nearest.write(found, folder)
    comments = (
        f"NOT ACCEPTED: none of {found.points} points meets the baseline of fit "
        f"'{found.declared.name}', this one comes nearest; {nearest.TABLE} says how near.",
        f"Declared in {found.declared.path}; simulated by ebb {found.ebb.version}.",
        _command(found.declared, folder),
    )
    _experiment(found.declared, folder, found.point, NOT_ACCEPTED, comments)


def _command(declared: Declaration, folder: Path) -> str:
    return f"ebb-lab fit {shlex.quote(str(declared.path))} -o {shlex.quote(str(folder))}"


def _remove(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)
        if name.endswith(".toml"):
            for place in ("profile", "workload"):
                (folder / _beside(name, place)).unlink(missing_ok=True)


def _beside(name: str, place: str) -> str:
    """What an experiment's file names."""
    return f"{name.removesuffix('.toml')}-{place}.toml"


def _samples(fit: Fit, path: Path) -> None:
    """A row per draw, the central one first, as `dataset` writes its columns."""
    columns: dict[str, Any] = {}
    fields = []
    for index, free in enumerate(fit.declared.free):
        columns[free.name] = fit.samples[:, index]
        fields.append(pa.field(free.name, pa.float64(), metadata=_about(free.unit, "fitted")))
    for index, row in enumerate(fit.declared.baseline):
        columns[row.name] = fit.fitted[:, index]
        about = _about(row.unit, "modelled by the digital twin")
        fields.append(pa.field(row.name, pa.float64(), metadata=about))
    schema = pa.schema(
        fields,
        metadata={
            "ebb.version": fit.ebb.version,
            "ebb.sha256": fit.ebb.sha256,
            "ebb_lab.version": ebb_lab.VERSION,
            "ebb_lab.declaration": fit.declared.text,
            "ebb_lab.commit": str(fit.commit),
        },
    )
    partial = path.with_suffix(".partial")
    pq.write_table(pa.table(columns, schema=schema), partial, compression="zstd")
    partial.replace(path)


def _about(unit: str, source: str) -> dict[str, str]:
    return {"unit": unit, "source": source}


def _central(fit: Fit, folder: Path) -> None:
    declared = fit.declared
    comments = (
        f"Fit '{declared.name}', simulated: the draw nearest to the posterior's mean.",
        f"Declared in {declared.path} ({fit.commit}); {len(fit.found.shares)} points, seeds "
        f"{declared.seeds[0]} to {declared.seeds[-1]}, ebb {fit.ebb.version}.",
        command(fit, folder),
    )
    _experiment(declared, folder, fit.samples[0].tolist(), CENTRAL, comments)


def _experiment(
    declared: Declaration, folder: Path, point: list[float], file: str, comments: Sequence[str]
) -> None:
    """An experiment of the first run, of those that state least of the server by themselves, and
    the profile and workload that it takes."""
    variants = Variants(declared, folder)
    name = min(declared.runs, key=lambda run: len(variants.stated[run]))
    options = variants.options(name, point) | {"seed": declared.seeds[0]}
    for place in ("profile", "workload"):
        document = variants.document(place, name, point)
        if document:
            path = folder.resolve() / _beside(file, place)
            path.write_text(toml.document(document, comments), encoding="utf-8")
            options[place] = str(path)
    told = toml.document(grid.counted(options), comments)
    (folder / file).write_text(told, encoding="utf-8")


def as_json(fit: Fit, folder: Path) -> dict[str, Any]:
    """What `--json` prints (docs/json-schema/lab-fit-2.json)."""
    declared = fit.declared
    left_out = {each.row.name: each for each in fit.left_out}
    baseline = []
    for index, row in enumerate(declared.baseline):
        each = left_out.get(row.name)
        baseline.append(
            _row(row)
            | {
                "deviation": float(fit.found.deviation[index]),
                "central": float(fit.fitted[0, index]),
                "region": _range(fit.fitted[:, index]),
            }
            | (
                {}
                if each is None
                else {
                    "left_out": {
                        "with": each.group,
                        "widened": each.widened,
                        "mean": each.mean,
                        "range": each.range,
                        "error": each.error,
                    }
                }
            )
        )
    return {
        "schema": 2,
        "simulated": True,
        "name": declared.name,
        "declaration": str(declared.path),
        "commit": fit.commit.id,
        "dirty": fit.commit.dirty,
        "ebb": {"version": fit.ebb.version, "sha256": fit.ebb.sha256},
        "command": command(fit, folder),
        "seeds": declared.seeds,
        "prediction_seeds": declared.prediction_seeds,
        "points": len(fit.found.shares),
        "refused": {"points": fit.found.refused, "why": fit.refusal},
        "widened": fit.found.widened,
        "emulator_error": float((fit.found.error / fit.found.deviation).max()),
        "forecast": max(1, len(fit.samples) - 1),
        "free": [
            {
                "name": free.name,
                "set": [str(target) for target in free.targets],
                "unit": free.unit,
                "why": free.why,
                "low": free.low,
                "high": free.high,
                "region": tuple(fit.ranges[index].tolist()),
                "central": float(fit.samples[0, index]),
                "reaches": [
                    name
                    for name, at in zip(("low", "high"), fit.found.ends[index], strict=True)
                    if at
                ],
            }
            for index, free in enumerate(declared.free)
        ],
        "baseline": baseline,
        "predictions": [
            _row(each.row)
            | {
                "bound": each.row.bound,
                "mean": each.mean,
                "seeds": each.seeds,
                "range": each.range,
                "verdict": each.verdict,
            }
            | ({} if each.decided is None else {"decided_by": vars(each.decided)})
            for each in fit.predictions
        ],
        "joint": None if fit.joint is None else vars(fit.joint),
        "files": [str(folder / name) for name in (SAMPLES, FIT, CENTRAL)],
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "source": row.source,
        "run": row.run,
        "of": row.of,
        "over": row.over,
        "value": row.value,
        "unit": row.unit,
        "paper": row.paper,
        "uncertainty": row.uncertainty,
        "rounding": row.rounding,
    }


def _range(values: Any) -> tuple[float, float]:
    return float(np.min(values)), float(np.max(values))
