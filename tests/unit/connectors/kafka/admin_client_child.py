"""What is left open when a broker cannot be reached, counted in a process that has nothing else to open or to close.

usage: admin_client_child.py direct|alone|question ADDRESS, which nobody listens at; prints the files and the threads left.
"""

from __future__ import annotations

import gc
import os
import sys
import threading

from kafka.net import NetworkSelector
from kafka.net.inet import create_connection

from poundlock.connectors.kafka.client_loader import direct
from poundlock.connectors.kafka.sink.transactions import Transactions
from poundlock.errors import CommitUnknown

TRIES = 50


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def connect(address: str, proxy_url: str | None) -> int:
    """Return how many files stay open after connections that fail."""
    host, _, port = address.partition(":")
    net = NetworkSelector()

    async def tries() -> None:
        for _ in range(TRIES):
            try:
                await create_connection(net, host, int(port), proxy_url=proxy_url)
            except Exception as error:
                if "ECONNREFUSED" not in str(error):
                    raise
            else:
                raise AssertionError(f"somebody listens at {address}")

    try:
        before = open_files()
        net.run(tries)
        return open_files() - before
    finally:
        net.close()


def question(address: str) -> int:
    """Return how many files stay open after a question that nobody answers."""
    before = open_files()
    try:
        Transactions(address, dict, timeout=1).broker_version()
    except CommitUnknown as error:
        if "no answer from Kafka" not in str(error):
            raise
    else:
        raise AssertionError(f"somebody answers at {address}")
    return open_files() - before


def main(what: str, address: str) -> None:
    gc.collect()
    gc.disable()  # a process that waits does not come by it
    threads = threading.active_count()
    files = {
        "direct": lambda: connect(address, direct()),
        "alone": lambda: connect(address, None),
        "question": lambda: question(address),
    }[what]()
    print(files, threading.active_count() - threads)


if __name__ == "__main__":
    main(*sys.argv[1:])
