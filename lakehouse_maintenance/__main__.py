"""`python -m lakehouse_maintenance`: the command line."""

from __future__ import annotations

import sys

from lakehouse_maintenance.cli import main

if __name__ == "__main__":
    sys.exit(main())
