"""The runs of a grid as one Parquet file, a row per run and policy, with where it came from.

Rows stand in the order of the grid, whoever ran them when; nothing in the file depends on time,
machine or number of workers. Each column's metadata has its `unit` and its `source`: an option of
the grid, the twin (modelled, nothing was measured) or the lab's record of the run.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ebb_lab import simulating
from ebb_lab.fields import DATASET, flatten, unit
from ebb_lab.grid import Job

Rows = Callable[[], Iterator[tuple[Job, dict[str, Any]]]]

#: Rows written at a time: bounds memory however many runs there are.
BATCH = 20_000

_OPTION = "option of the grid"
_TWIN = "modelled by the digital twin"
_RECORD = "record of the run"
#: Fields of the results that repeat what was asked for.
_STATED = ("policy", "profile", "workload", "seed", "plf", "ssd_budget_watts", "pressure")


def write(folder: Path, results: Rows, provenance: Mapping[str, str]) -> Path:
    """Writes `dataset.parquet`, which appears when it is whole."""
    schema = _schema(results, provenance)
    path = folder / DATASET
    partial = path.with_suffix(".partial")
    with pq.ParquetWriter(partial, schema, compression="zstd") as writer:
        batch: list[dict[str, Any]] = []
        for row, _ in _rows(results):
            batch.append(row)
            if len(batch) >= BATCH:
                writer.write_table(pa.Table.from_pylist(batch, schema))
                batch = []
        if batch:
            writer.write_table(pa.Table.from_pylist(batch, schema))
    partial.replace(path)
    return path


def _rows(results: Rows) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Each row, and where each of its columns comes from."""
    for job, result in results():
        options = {name.replace("-", "_"): value for name, value in job.labels if name != "seed"}
        common = {
            name: value
            for name, value in flatten(
                {k: v for k, v in result.items() if k not in ("schema", "simulated", "experiment")}
            ).items()
            if name not in options or not isinstance(value, str)
        }
        record: dict[str, Any] = {f"{_option_of(job, name)}_sha256": sha for name, sha in job.files}
        record |= {"command": simulating.command(job), "key": job.key}
        for run in result["runs"]:
            found = {"policy": run["policy"]} | common | flatten(run)
            kept = {name: value for name, value in options.items() if name not in found}
            source = (
                dict.fromkeys(kept, _OPTION)
                | dict.fromkeys(found, _TWIN)
                | dict.fromkeys(_STATED, _OPTION)
                | dict.fromkeys(record, _RECORD)
            )
            yield kept | found | record, source


def _option_of(job: Job, name: str) -> str:
    """The option that names this file; `inputs` for what a profile names in turn."""
    for word in job.words:
        option, _, value = word.removeprefix("--").partition("=")
        if value == name:
            return option
    return "inputs"


def _schema(results: Rows, provenance: Mapping[str, str]) -> pa.Schema:
    """Columns in order of appearance; numbers are floating where one of them is."""
    kinds: dict[str, pa.DataType] = {}
    sources: dict[str, str] = {}
    for row, source in _rows(results):
        for name, value in row.items():
            kind = _kind(value)
            before = kinds.get(name, pa.null())
            if before == pa.null() or (before == pa.int64() and kind == pa.float64()):
                kinds[name] = kind
            sources.setdefault(name, source[name])
    fields = [
        pa.field(
            name,
            pa.float64() if kind == pa.null() else kind,
            metadata={"unit": unit(name), "source": sources[name]},
        )
        for name, kind in kinds.items()
    ]
    return pa.schema(fields, metadata=dict(provenance))


def _kind(value: Any) -> pa.DataType:
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64()
    if isinstance(value, float):
        return pa.float64()
    return pa.string()
