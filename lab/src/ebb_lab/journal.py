"""What is done, on disk: one JSON line for each run that ended, appended as it ends.

A line is the unit of survival: whatever kills the process, lines that are whole stay, and one that
was under way is cut off at the next start. Runs are found by their keys; the last line of a key
counts.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from ebb_lab.errors import LabError, WorkError

#: At most this much of finished work is lost with the machine's power, s.
SYNC = 1.0


@dataclass(frozen=True)
class Entry:
    """Where a run's line begins and ends, how long it took and why it failed, if it did;
    `refused` where it would fail again."""

    start: int
    end: int
    seconds: float
    error: str | None
    refused: bool = False


class Journal:
    """The file `runs.jsonl` of a folder. Only one process may write at a time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "runs.jsonl"
        self.entries: dict[str, Entry] = {}
        self._file: IO[bytes] | None = None
        self._synced = 0.0

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.path.open("ab+")
        except OSError as error:
            raise WorkError(str(self.path), f"{error.strerror}", "Name another -o") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise WorkError(
                str(self.path),
                "another ebb-lab is running these experiments",
                "Wait for it, end it, or name another -o",
            ) from error
        try:
            file.truncate(self._scan(file))
        except BaseException:
            file.close()
            raise
        self._file = file
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def load(self) -> None:
        """Reads what is done without claiming the file, while another process may write."""
        if self.path.exists():
            with self.path.open("rb") as file:
                self._scan(file)

    @property
    def busy(self) -> bool:
        """Whether a process is writing."""
        if not self.path.exists():
            return False
        with self.path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def append(self, record: dict[str, Any]) -> None:
        """Adds a run that ended; handed to the operating system before this returns."""
        if self._file is None:
            raise ValueError("the journal is not open")
        line = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        try:
            start = self._file.seek(0, os.SEEK_END)
            self._file.write(line)
            self._file.flush()
            if time.monotonic() - self._synced > SYNC:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()
        except OSError as error:
            raise WorkError(
                str(self.path), f"{error.strerror}", "Make room, then run the same command again"
            ) from error
        self._note(record, start, start + len(line))

    def records(self, keys: Iterator[str]) -> Iterator[dict[str, Any]]:
        """The runs of these keys that succeeded, in this order."""
        with self.path.open("rb") as file:
            for key in keys:
                entry = self.entries.get(key)
                if entry is not None and entry.error is None:
                    file.seek(entry.start)
                    yield json.loads(file.read(entry.end - entry.start))

    def _note(self, record: dict[str, Any], start: int, end: int) -> None:
        self.entries[record["key"]] = Entry(
            start, end, record["seconds"], record.get("error"), record.get("refused", False)
        )

    def _scan(self, file: IO[bytes]) -> int:
        """Notes every whole line and returns where the last one ends."""
        file.seek(0)
        at = 0
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                self._note(json.loads(line), at, at + len(line))
            except (ValueError, KeyError, TypeError) as error:
                raise LabError(
                    f"{self.path}:{number}",
                    "damaged: not the record of a run",
                    "Remove the line; the run is then done again",
                ) from error
            at += len(line)
        return at
