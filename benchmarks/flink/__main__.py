"""`make bench-flink`: install Flink, so that `make bench` measures it beside ours."""

from __future__ import annotations

import sys

from benchmarks.flink.install import FLINK, HOME, install
from poundlock.errors import PoundlockError

if __name__ == "__main__":
    try:
        install()
    except PoundlockError as error:
        sys.exit(str(error))
    print(f"Flink {FLINK} is in {HOME}. Next: make bench")
