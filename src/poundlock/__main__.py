"""`python -m poundlock`: the same as the command `poundlock`."""

from __future__ import annotations

import sys

from poundlock.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
