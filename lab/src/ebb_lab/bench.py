"""Runs for a purpose: those that the journal lacks are simulated, and all have to succeed."""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebb_lab import experiments
from ebb_lab.errors import LabError
from ebb_lab.grid import Job
from ebb_lab.journal import Journal


@dataclass(frozen=True)
class Bench:
    """Where runs are done and kept."""

    journal: Journal
    executor: Executor
    workers: int
    progress: bool

    def results(self, jobs: Sequence[Job], where: str, what: str = "") -> list[dict[str, Any]]:
        """The result of each run, in this order; `what` is told beside the progress."""
        wanted = {job.key: job for job in jobs}
        left = [job for job in wanted.values() if not experiments.succeeded(self.journal, job)]
        if left:
            experiments.work(
                self.executor, left, self.journal, self.workers, len(wanted), self.progress, what
            )
        for job in wanted.values():
            entry = self.journal.entries.get(job.key)
            if entry is None or entry.error:
                # An error begins with the run's title.
                reason = entry.error if entry and entry.error else f"{job.title}: was not run"
                raise LabError(where, reason, "Correct the file")
        keys = iter([job.key for job in jobs])
        return [record["result"] for record in self.journal.records(keys)]


@contextlib.contextmanager
def opened(folder: Path, client: Any, workers: int | None, progress: bool) -> Iterator[Bench]:
    """A bench whose journal is in this folder; `client` is a Dask client or None."""
    count = experiments.workers_of(client, workers)
    with Journal(folder) as journal, experiments.executor_for(client, count) as executor:
        yield Bench(journal, executor, count, progress)
