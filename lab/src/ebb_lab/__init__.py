"""Experiments, statistics and plans over Ebb, the power management of storage servers.

`statistics` is the storage-servers study's method, `experiments` runs grids of simulations,
`planning` answers how many servers a trace takes. Each is a command of `ebb-lab` too.
"""

import importlib.metadata

try:
    #: Version of the wheel; `source` where the package is used as it lies in the repository.
    VERSION = importlib.metadata.version("ebb-lab")
except importlib.metadata.PackageNotFoundError:
    VERSION = "source"
