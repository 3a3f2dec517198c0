"""Runs for a purpose: those that the journal lacks are simulated."""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebb_lab import experiments
from ebb_lab.errors import LabError, RefusedError
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
        """The result of each run, in this order; `what` is told beside the progress. All have to
        succeed."""
        wanted = {job.key: job for job in jobs}
        left = [job for job in wanted.values() if not experiments.succeeded(self.journal, job)]
        self._work(left, len(wanted), what, refusals=True)
        for job in wanted.values():
            if error := self._error(where, job):
                raise error
        keys = iter([job.key for job in jobs])
        return [record["result"] for record in self.journal.records(keys)]

    def outcomes(
        self, jobs: Sequence[Job], where: str, what: str = ""
    ) -> list[dict[str, Any] | RefusedError]:
        """The same where `ebb` may refuse some of the runs; these are not tried again."""
        wanted = {job.key: job for job in jobs}
        entries = self.journal.entries
        left = [
            job
            for job in wanted.values()
            if not experiments.succeeded(self.journal, job)
            and not (job.key in entries and entries[job.key].refused)
        ]
        self._work(left, len(wanted), what, refusals=False)
        errors = {job.key: self._error(where, job) for job in wanted.values()}
        for error in errors.values():
            if error and not isinstance(error, RefusedError):
                raise error
        keys = iter([job.key for job in jobs if not errors[job.key]])
        records = self.journal.records(keys)
        return [
            error if isinstance(error := errors[job.key], RefusedError) else next(records)["result"]
            for job in jobs
        ]

    def _work(self, left: list[Job], total: int, what: str, *, refusals: bool) -> None:
        if left:
            experiments.work(
                self.executor,
                left,
                self.journal,
                self.workers,
                total,
                self.progress,
                what,
                refusals=refusals,
            )

    def _error(self, where: str, job: Job) -> LabError | None:
        """Why a run has no result; none where it has one."""
        entry = self.journal.entries.get(job.key)
        if entry and not entry.error:
            return None
        # An error begins with the run's title.
        reason = entry.error if entry and entry.error else f"{job.title}: was not run"
        kind = RefusedError if entry and entry.refused else LabError
        return kind(where, reason, "Correct the file")


@contextlib.contextmanager
def opened(folder: Path, client: Any, workers: int | None, progress: bool) -> Iterator[Bench]:
    """A bench whose journal is in this folder; `client` is a Dask client or None."""
    count = experiments.workers_of(client, workers)
    with Journal(folder) as journal, experiments.executor_for(client, count) as executor:
        yield Bench(journal, executor, count, progress)
