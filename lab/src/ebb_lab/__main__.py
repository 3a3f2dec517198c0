"""`python -m ebb_lab` is `ebb-lab`."""

import sys

from ebb_lab.cli import main

sys.exit(main())
