"""`python -m poundlock.demo`: the demo without the command line around it. The exit code is the verdict."""

from __future__ import annotations

import sys

from rich.console import Console

from poundlock.demo.program import run_demo
from poundlock.errors import PoundlockError

if __name__ == "__main__":
    try:
        sys.exit(run_demo().exit_code)
    except PoundlockError as error:
        Console(stderr=True).print(str(error), markup=False)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
