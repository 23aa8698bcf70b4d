"""`make bench-peers`: install the peers, each in an environment of its own, so that they are measured beside ours."""

from __future__ import annotations

import sys

from benchmarks.peers.install import HOME, PEERS, SPARK_ICEBERG, install
from poundlock.errors import PoundlockError


def main() -> int:
    """Install what is missing; return 1 if nothing could be installed."""
    there = 0
    for peer in (*PEERS, SPARK_ICEBERG):
        try:
            install(peer)
        except PoundlockError as error:
            print(error, file=sys.stderr, flush=True)
        else:
            there += 1
            print(f"{peer.title} is in {HOME / peer.name}", flush=True)
    return 0 if there else 1


if __name__ == "__main__":
    sys.exit(main())
