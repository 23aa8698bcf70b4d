"""`make bench-flink`: install Flink and PyFlink, so that `make bench` measures them beside ours."""

from __future__ import annotations

import sys

from benchmarks.flink.install import FLINK, HOME, install
from benchmarks.peers import install as peers
from poundlock.errors import PoundlockError

if __name__ == "__main__":
    try:
        install()
        print(f"Flink {FLINK} is in {HOME}", flush=True)
        peers.install(peers.PYFLINK)
    except PoundlockError as error:
        sys.exit(str(error))
    print(f"PyFlink {FLINK} is in {peers.HOME / peers.PYFLINK.name}. Next: make bench")
