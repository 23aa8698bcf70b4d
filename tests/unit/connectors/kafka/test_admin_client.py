"""A driver that waits for a broker keeps no file open for each try, with no help of the garbage collector."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Iterator

import pytest
from kafka.net import NetworkSelector
from kafka.net.inet import create_connection

from poundlock.connectors.kafka.admin_client import direct
from poundlock.connectors.kafka.transactions import Transactions
from poundlock.errors import CommitUnknown

TRIES = 50


@pytest.fixture
def nobody() -> str:
    """An address that nobody listens at."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def failing(address: str, proxy_url: str | None) -> int:
    """Return how many files stay open after connections that fail."""
    host, _, port = address.partition(":")
    net = NetworkSelector()

    async def connect() -> None:
        for _ in range(TRIES):
            with pytest.raises(Exception, match="ECONNREFUSED"):
                await create_connection(net, host, int(port), proxy_url=proxy_url)

    try:
        before = open_files()
        net.run(connect)
        return open_files() - before
    finally:
        net.close()


@pytest.mark.usefixtures("uncollected")
def test_a_socket_that_cannot_connect_is_closed(nobody: str) -> None:
    assert failing(nobody, direct()) == 0


@pytest.mark.usefixtures("uncollected")
def test_kafka_python_alone_leaves_them_open(nobody: str) -> None:
    assert failing(nobody, None) > TRIES // 2, "it closes them by now: direct() can go"


@pytest.mark.usefixtures("uncollected")
def test_no_answer_leaves_neither_file_nor_thread(nobody: str) -> None:
    before, threads = open_files(), threading.active_count()
    with pytest.raises(CommitUnknown, match="no answer from Kafka"):
        Transactions(nobody, dict, timeout=1).broker_version()
    assert open_files() <= before
    assert threading.active_count() <= threads
