"""Starts `ebb run` for one block, and ends it in order whatever happens."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any, Protocol

from ebb_lab import fields
from ebb_lab.errors import LabError, WorkError, did_you_mean
from ebb_lab.fields import MICROSECONDS
from ebb_lab.trial.watching import Unfit

#: Before its first line `ebb run` asks all drives; later it tells something each period.
START_S, SILENCE_S, PERIODS = 90.0, 20.0, 10.0
#: For so long `ebb run` may set everything back; its supervisor waits 15 s for its worker.
PATIENCE_S = 60.0
#: How often it is looked whether somebody ends the trial.
LOOK_S = 0.2

#: Factors of units of time.
SECONDS = {unit: factor / 1e6 for unit, factor in MICROSECONDS.items()} | {"min": 60, "h": 3600}


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """Somebody ended the trial."""


class Runner(Protocol):
    """Whoever runs blocks."""

    def block(self, acts: bool, seconds: float) -> AbstractContextManager[Iterator[str]]:
        """The lines of `ebb run --json --samples`; leaving ends it and sets everything back."""

    def restore(self) -> None:
        """Sets back whatever may be left; `WorkError` where that fails."""


class Ending:
    """Whether a signal asked for the end. Handlers only note it, so that nothing cuts
    short what sets back."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.told = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Ending":
        self._before = {each: signal.signal(each, self._note) for each in self.SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.told = True


@dataclass
class Ebb:
    """The binary on this machine, or on a copy of its files."""

    path: Path
    policy: str
    ending: Ending
    config: Path | None = None
    state: Path | None = None
    root: Path | None = None
    period_s: float = field(default=0.5, init=False)

    def configuration(self) -> dict[str, Any]:
        """The configuration with all defaults, as `ebb` says it; one that acts by itself would
        leave nothing native."""
        words = [self.path, "config", "show", *([self.config] if self.config else [])]
        shown = tomllib.loads(self._ask(words))
        self.period_s = fields.scaled(shown["period"], SECONDS, "period")
        if shown.get("apply"):
            raise LabError(
                str(self.config or "the configuration"),
                "apply = true would have native blocks act",
                "Set apply = false; the trial acts in its policy blocks",
            )
        return shown

    def check(self) -> None:
        """Refuses a policy that can do nothing here."""
        found = json.loads(self._ask([self.path, "probe", "--json", *self._on(root=True)]))
        lacks = {each["policy"]: each["lacks"] for each in found["policies"]}
        parts = [part.split("(")[0].strip() for part in self.policy.split("+")]
        for part in parts:
            if part not in lacks:
                raise LabError(
                    f"--policy {self.policy}", f"no policy '{part}'", did_you_mean(part, lacks)
                )
        if parts and all(lacks.get(part) for part in parts):
            missing = ", no ".join(sorted({one for part in parts for one in lacks[part]}))
            raise LabError(
                f"--policy {self.policy}",
                f"can do nothing here: this machine has no {missing}",
                "'ebb probe' says why, and what to do; acting takes root",
            )

    @contextlib.contextmanager
    def block(self, acts: bool, seconds: float) -> Iterator[Iterator[str]]:
        """See `Runner`. In a session of its own: a Ctrl-C reaches it through this process alone."""
        if self.ending.told:
            raise Interrupted
        options: list[str | Path] = ["--config", self.config] if self.config else []
        words: list[str | Path] = [self.path, "run", "--json", "--samples"]
        # While it observes, `ebb run` models what its policy's decisions would make of what it
        # senses. The policy native decides nothing, so that samples are what was sensed.
        words += ["--policy", self.policy if acts else "native", "--duration", f"{seconds:g} s"]
        words += [*options, *self._on(state=True, root=True)]
        words += ["--apply"] if acts else []
        with tempfile.TemporaryFile() as told:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=told,
                start_new_session=True,
            )
            try:
                yield self._lines(process, told)
            finally:
                _end(process)

    def restore(self) -> None:
        """See `Runner`. No Ctrl-C cuts it short, as none does a block."""
        words = [self.path, "restore", *self._on(state=True, root=True)]
        ended = subprocess.run(
            words, capture_output=True, text=True, check=False, start_new_session=True
        )
        if ended.returncode:
            raise WorkError(
                "ebb restore", _message(ended.stderr), "Run 'ebb restore' once that is mended"
            )

    def _on(self, *, state: bool = False, root: bool = False) -> list[str | Path]:
        words: list[str | Path] = []
        if state and self.state:
            words += ["--state", self.state]
        if root and self.root:
            words += ["--root", self.root]
        return words

    def _ask(self, words: list[Any]) -> str:
        ended = subprocess.run(words, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise LabError(f"ebb {words[1]}", _message(ended.stderr), "See 'ebb run --help'")
        return ended.stdout

    def _lines(self, process: subprocess.Popen[bytes], told: IO[bytes]) -> Iterator[str]:
        """Each line as it comes, until `ebb` ends well."""
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        rest, patience = b"", START_S
        heard = time.monotonic()
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ)
            while True:
                if self.ending.told:
                    raise Interrupted
                if not waiting.select(LOOK_S):
                    if time.monotonic() - heard > patience:
                        raise Unfit(f"ebb run was silent for {patience:g} s")
                    continue
                read = os.read(process.stdout.fileno(), 1 << 16)
                if not read:
                    break
                heard, patience = time.monotonic(), max(SILENCE_S, PERIODS * self.period_s)
                *lines, rest = (rest + read).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)
        code = process.wait()
        if code:
            told.seek(0)
            said = _message(told.read().decode(errors="replace"))
            if code == 2:
                raise LabError("ebb run", said, "See 'ebb run --help' and 'ebb probe'")
            raise Unfit(f"ebb run ended with code {code}: {said}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Has it set everything back; one that does not is killed, and `restore` does it."""
    if process.stdout:
        process.stdout.close()
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _message(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error")]
    return (errors or lines or ["no reason given"])[-1].removeprefix("error: ")
