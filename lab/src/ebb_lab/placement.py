"""A trace's requests laid on several servers, as a distributed store lays out extents of data.

Each extent goes to one server, chosen by a digest of device, extent and seed: hot extents make
one server busier than others, as they do in stores.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ebb_lab.binary import Binary
from ebb_lab.errors import LabError

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes that stay together on one server.
EXTENT = 64 << 20


def convert(ebb: Binary, words: list[str], to: Path) -> pa.Table:
    """The requests of traces in any format that `ebb` reads, cut and scaled by its options."""
    import pyarrow.parquet as pq

    ended = subprocess.run(
        [ebb.path, "trace", "convert", *words, "--output", to, "--output-format", "parquet"],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        reason = ended.stderr.strip().removeprefix("error: ")
        raise LabError("--trace", reason, "ebb trace info tells what a file holds")
    requests = pq.read_table(to)
    if not len(requests):
        raise LabError("--trace", "there are no requests", "Name another, or another --from, --to")
    return requests


def places(requests: pa.Table, servers: int, seed: int) -> npt.NDArray[np.int64]:
    """The server of each request, from 0."""
    extent = requests["offset"].to_numpy().astype(np.uint64) // np.uint64(EXTENT)
    device = requests["device"].to_numpy().astype(np.uint64)
    digest = _mixed(_mixed(extent + _mixed(device)) + np.uint64(seed))
    return (digest % np.uint64(servers)).astype(np.int64)


def write(requests: pa.Table, which: npt.NDArray[np.bool_], path: Path) -> None:
    """Some of the requests as a trace of their own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(requests.filter(pa.array(which)), path)


def _mixed(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's mixing (Steele, Lea and Flood 2014): equal inputs, equal outputs, all else
    as if drawn by lot."""
    with np.errstate(over="ignore"):
        value = value + np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return value ^ (value >> np.uint64(31))
