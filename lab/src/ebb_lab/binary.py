"""Finds the binary `ebb` and says which it is.

Looked for in this order: the environment variable `EBB`, the scripts of this Python environment
(where the wheel puts it), `target/release` and `target/debug` of the repository that the package
lies in, and `PATH`.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from ebb_lab.errors import LabError


@dataclass(frozen=True)
class Binary:
    """An executable `ebb`: its version as it says it, and the SHA-256 of the file."""

    path: Path
    version: str
    sha256: str


def find() -> Binary:
    """The binary of this machine; `LabError` with the remedy where there is none."""
    return _identify(_look())


def _look() -> Path:
    named = os.environ.get("EBB")
    if named:
        path = Path(named)
        if not os.access(path, os.X_OK) or path.is_dir():
            raise LabError(
                f"EBB={named}", "no executable file", "Set EBB to the path of the binary ebb"
            )
        return path.resolve()
    repository = Path(__file__).resolve().parents[3]
    places = [Path(sysconfig.get_path("scripts")) / "ebb"]
    if (repository / "crates" / "ebb").is_dir():
        places += [repository / "target" / kind / "ebb" for kind in ("release", "debug")]
    for place in places:
        if os.access(place, os.X_OK):
            return place
    on_path = shutil.which("ebb")
    if on_path:
        return Path(on_path).resolve()
    raise LabError(
        "ebb",
        "the binary was not found in EBB, this Python environment, target/ or PATH",
        "Build it with 'cargo build --release -p ebb', or set EBB to its path",
    )


@functools.cache
def _identify(path: Path) -> Binary:
    try:
        told = subprocess.run(
            [path, "--version"], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LabError(
            str(path), f"'ebb --version' fails: {error}", "Set EBB to a binary that runs here"
        ) from error
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Binary(path, told.stdout.strip().removeprefix("ebb "), digest)


@functools.cache
def shipped(name: str) -> str | None:
    """The text of a shipped server or drive model, None where none has this name."""
    told = subprocess.run(
        [find().path, "profile", name], capture_output=True, check=False, timeout=60
    )
    return told.stdout.decode() if told.returncode == 0 else None
