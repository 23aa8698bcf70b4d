"""Spark that cannot call this process is told at once: it would wait for ever."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from poundlock.errors import TerminalError
from poundlock.spark.private import check_callbacks

FAR = 1500


@pytest.fixture
def far() -> Iterator[socket.socket]:
    """A socket with a number that `select` does not know."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FAR + 1), hard))
    with socket.socket() as near:
        os.dup2(near.fileno(), FAR)
    made = socket.socket(fileno=FAR)
    yield made
    made.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_server_that_select_does_not_know(monkeypatch: pytest.MonkeyPatch, far: socket.socket) -> None:
    gateway = SimpleNamespace(_callback_server=SimpleNamespace(server_socket=far))
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    with pytest.raises(TerminalError, match=r"so many files open \(1,500\)"):
        check_callbacks()


def test_what_is_near_enough_and_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as near:
        gateway = SimpleNamespace(_callback_server=SimpleNamespace(server_socket=near))
        monkeypatch.setattr(SparkContext, "_gateway", gateway)
        check_callbacks()
    for nothing in (None, SimpleNamespace()):
        monkeypatch.setattr(SparkContext, "_gateway", nothing)
        check_callbacks()
