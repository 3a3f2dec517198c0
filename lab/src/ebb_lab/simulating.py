"""One run: `ebb sim … --json` in a process of its own, on whatever machine this is imported."""

import json
import platform
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from ebb_lab import binary, grid
from ebb_lab.errors import LabError, RefusedError
from ebb_lab.grid import Job

#: How often a run is tried whose process was killed.
TRIES = 3
#: Exit codes of `ebb` for a run that will not succeed as it is (docs/cli.md); others are bugs.
REFUSALS = (1, 2)


def simulate(job: Job) -> dict[str, Any]:
    """The record of a run for the journal: its result, or why there is none.

    What is wrong with one run must not end the others, so that errors are part of the record.
    """
    began = time.perf_counter()
    record: dict[str, Any] = {"key": job.key}
    try:
        record["result"] = _result(job)
    except LabError as error:
        record["error"] = str(error)
        if isinstance(error, RefusedError):
            record["refused"] = True
    record["seconds"] = round(time.perf_counter() - began, 6)
    return record


def _result(job: Job) -> dict[str, Any]:
    ebb = binary.find()
    host = platform.node()
    if ebb.sha256 != job.ebb_sha256:
        raise LabError(
            f"{host}: {ebb.path}",
            "another build of ebb than where the experiments were started",
            "Install the same wheel there, or set EBB to the same file",
        )
    for name, digest in job.files:
        path = Path(job.folder) / name
        if grid.digest(path, f"{host}: {job.title}") != digest:
            raise LabError(
                f"{host}: {path}", "changed while experiments ran", "Run the same command again"
            )
    for _ in range(TRIES):
        ended = subprocess.run(
            [ebb.path, "sim", *job.words, "--threads=1", "--json", "--quiet"],
            cwd=job.folder,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if ended.returncode >= 0:
            return _parsed(job, ended)
    name = signal.Signals(-ended.returncode).name
    raise LabError(
        f"{host}: {job.title}",
        f"ebb sim was killed by {name}, {TRIES} times",
        "For want of memory? Use fewer --workers, or a shorter trace",
    )


def _parsed(job: Job, ended: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """The result. Exit code 1 with results means that a server tripped, which is one."""
    told = ended.stderr.decode(errors="replace").strip().removeprefix("error: ")
    try:
        result = json.loads(ended.stdout)
    except ValueError:
        result = None
    if not isinstance(result, dict) or not result.get("runs") or "unfinished" in result:
        kind = RefusedError if told and ended.returncode in REFUSALS else LabError
        raise kind(
            job.title,
            told or f"ebb sim printed no result, exit code {ended.returncode}",
            f"The command was: {command(job)}",
        )
    if result.get("schema") != 1:
        raise LabError(
            job.title,
            f"results have schema {result.get('schema')}, known is 1",
            "Use the ebb that belongs to this ebb_lab",
        )
    return result


def command(job: Job) -> str:
    """The command line that repeats this run by hand, in the grid's folder."""
    quoted = map(shlex.quote, job.words)
    return " ".join(["ebb sim", *quoted])
