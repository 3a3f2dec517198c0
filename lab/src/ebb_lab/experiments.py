"""`ebb-lab run` and `status`: a grid of simulations, on this machine or on a Dask cluster.

A folder holds a grid's experiments: `grid.json` says what there is to do, `runs.jsonl` what is
done (`journal`), `dataset.parquet` the result. Starting the same command again goes on where it
was; a grid that grew runs what is new.
"""

import contextlib
import json
import os
import statistics
import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

import ebb_lab
from ebb_lab import binary, dataset, grid, simulating
from ebb_lab.binary import Binary
from ebb_lab.errors import LabError
from ebb_lab.fields import DATASET
from ebb_lab.grid import Grid, Job
from ebb_lab.journal import Journal

#: What `ebb-lab run` keeps under way per worker, so that none waits for the next.
AHEAD = 3
#: So many failures before any success end it: the grid is wrong.
HOPELESS = 10


@dataclass(frozen=True)
class Status:
    """How far a grid is. `seconds_left` is a guess from runs done so far, None before any."""

    name: str
    total: int
    done: int
    failed: int
    running: bool
    workers: int
    seconds_per_run: float | None
    seconds_left: float | None
    failures: tuple[tuple[str, str], ...]
    dataset: str | None


def run(
    path: Path,
    folder: Path,
    *,
    client: Any = None,
    workers: int | None = None,
    progress: bool = True,
) -> Status:
    """Runs what is not done yet of a grid, then writes the dataset.

    `client` is a Dask client of any cluster; without it `workers` processes run here (default:
    one for each core). Runs that fail do not end the others; the status names them.
    """
    ebb = binary.find()
    wanted = grid.read(path, ebb)
    count = workers_of(client, workers)
    with Journal(folder) as journal:
        _describe(folder, wanted, ebb, count)
        left = [job for job in wanted.jobs if not succeeded(journal, job)]
        with executor_for(client, count) as executor:
            work(executor, left, journal, count, len(wanted.jobs), progress)
        written = _collect(folder, wanted, journal, ebb)
    return _status(
        folder, wanted.name, [_about(job) for job in wanted.jobs], journal, count, written
    )


def status(folder: Path) -> Status:
    """How far the experiments of a folder are, while they run or not."""
    described = folder / "grid.json"
    try:
        about = json.loads(described.read_text())
    except (OSError, ValueError) as error:
        raise LabError(
            str(folder), "no experiments of ebb-lab run", "Name the folder that was its -o"
        ) from error
    journal = Journal(folder)
    journal.load()
    path = folder / DATASET
    written = path if path.exists() and not journal.busy else None
    return _status(folder, about["name"], about["runs"], journal, about["workers"], written)


def _status(
    folder: Path,
    name: str,
    runs: list[dict[str, str]],
    journal: Journal,
    workers: int,
    written: Path | None,
) -> Status:
    entries = [(run, journal.entries.get(run["key"])) for run in runs]
    times = [entry.seconds for _, entry in entries if entry and not entry.error]
    failures = [(run["title"], entry.error) for run, entry in entries if entry and entry.error]
    mean = statistics.fmean(times) if times else None
    return Status(
        name=name,
        total=len(runs),
        done=len(times),
        failed=len(failures),
        running=journal.busy,
        workers=workers,
        seconds_per_run=mean,
        seconds_left=None if mean is None else mean * (len(runs) - len(times)) / workers,
        failures=tuple(failures),
        dataset=str(written) if written else None,
    )


def workers_of(client: Any, workers: int | None) -> int:
    """How many runs can be under way: threads of the cluster, or cores here."""
    if client is not None:
        threads: list[int] = list(client.nthreads().values())
        return max(1, sum(threads))
    if workers is not None and workers < 1:
        raise LabError("--workers", f"{workers} is too few", "At least 1")
    return workers or len(os.sched_getaffinity(0))


@contextlib.contextmanager
def executor_for(client: Any, workers: int) -> Iterator[Executor]:
    """A Dask client's executor has the interface of the standard library's."""
    if client is not None:
        executor: Executor = client.get_executor(pure=False, retries=simulating.TRIES)
        try:
            yield executor
        finally:
            executor.shutdown(wait=False)
        return
    executor = ThreadPoolExecutor(workers)
    try:
        yield executor
    finally:
        # What is under way ends, or is interrupted by what interrupted this.
        executor.shutdown(wait=True, cancel_futures=True)


def work(
    executor: Executor,
    left: list[Job],
    journal: Journal,
    workers: int,
    total: int,
    progress: bool,
    what: str = "",
    refusals: bool = True,
) -> None:
    """Runs the jobs that are left of `total` and notes each in the journal as it ends. Without
    `refusals` runs that `ebb` refuses are no failures: they are expected."""
    waiting = iter(left)
    under_way: dict[Future[dict[str, Any]], Job] = {}
    succeeded = failed = 0
    quiet = not progress or not sys.stderr.isatty()
    done = total - len(left)
    with tqdm(desc=what or None, total=total, initial=done, unit="run", disable=quiet) as bar:
        while True:
            while len(under_way) < AHEAD * workers and (job := next(waiting, None)):
                under_way[executor.submit(simulating.simulate, job)] = job
            if not under_way:
                return
            ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in ended:
                job = under_way.pop(future)
                record = _record(future, job)
                journal.append(record)
                bar.update()
                succeeded += "error" not in record
                failed += "error" in record and (refusals or not record.get("refused"))
            if failed >= HOPELESS and not succeeded:
                for future in under_way:
                    future.cancel()
                return


def _record(future: Future[dict[str, Any]], job: Job) -> dict[str, Any]:
    try:
        return future.result()
    except Exception as error:
        return {"key": job.key, "error": f"{job.title}: {error!r}", "seconds": 0.0}


def succeeded(journal: Journal, job: Job) -> bool:
    """Whether the journal has this run's result."""
    entry = journal.entries.get(job.key)
    return entry is not None and entry.error is None


def _about(job: Job) -> dict[str, str]:
    return {"key": job.key, "title": job.title}


def _describe(folder: Path, wanted: Grid, ebb: Binary, workers: int) -> None:
    """What `status` needs; written as a whole or not at all."""
    about = {
        "schema": 1,
        "name": wanted.name,
        "ebb": {"version": ebb.version, "sha256": ebb.sha256},
        "workers": workers,
        "grid": wanted.text,
        "runs": [_about(job) for job in wanted.jobs],
    }
    partial = folder / "grid.partial"
    partial.write_text(json.dumps(about, ensure_ascii=False, indent=1))
    partial.replace(folder / "grid.json")


def _collect(folder: Path, wanted: Grid, journal: Journal, ebb: Binary) -> Path | None:
    done = {job.key: job for job in wanted.jobs if succeeded(journal, job)}
    if not done:
        return None

    def results() -> Iterator[tuple[Job, dict[str, Any]]]:
        for record in journal.records(iter(done)):
            yield done[record["key"]], record["result"]

    provenance = {
        "ebb.version": ebb.version,
        "ebb.sha256": ebb.sha256,
        "ebb_lab.version": ebb_lab.VERSION,
        "ebb_lab.grid": wanted.text,
        "ebb_lab.runs": f"{len(done)} of {len(wanted.jobs)}",
        "ebb_lab.modelled": "power and latency are simulated by Ebb's digital twin",
    }
    return dataset.write(folder, results, provenance)
