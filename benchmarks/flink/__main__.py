"""`make bench-flink`: install Flink and PyFlink, so that `make bench` measures them beside ours."""

from __future__ import annotations

import sys

from benchmarks.flink.install import FLINK, HOME, PYFLINK_HOME, install, install_pyflink
from poundlock.errors import PoundlockError

if __name__ == "__main__":
    try:
        install()
        print(f"Flink {FLINK} is in {HOME}", flush=True)
        install_pyflink()
    except PoundlockError as error:
        sys.exit(str(error))
    print(f"PyFlink {FLINK} is in {PYFLINK_HOME}. Next: make bench")
