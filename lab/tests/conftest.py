"""What the tests share: the binary that they run, and grids of short runs."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ebb_lab import binary

# A shell's job in the background ignores it, and so would what is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples everywhere, however busy the machine.
settings.register_profile(
    "ebb", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ebb")

GRID = """\
name = "short"
[options]
workload = "rand-rw"
profile = "generic-1u"
policy = ["native", "ondemand"]
duration = "1 s"
[axes]
rate = ["500 IOPS", "1000 IOPS"]
seed = { from = 1, to = 6 }
"""


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """Twelve runs of two policies, some hundredths of a second each."""
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return path


def slow_ebb(folder: Path, seconds: float) -> dict[str, str]:
    """An environment whose ebb sleeps before each run, so that a test can act in mid-run."""
    script = folder / "slow-ebb"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = sim ] && sleep {seconds}\nexec "{binary.find().path}" "$@"\n'
    )
    script.chmod(0o755)
    return os.environ | {"EBB": str(script)}
