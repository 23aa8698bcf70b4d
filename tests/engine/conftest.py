"""One JVM for all jobs of a file of tests: starting one costs more than most of what they look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from poundlock import Job
from poundlock.config import load_settings
from poundlock.driver import context as assembly
from poundlock.spark.launch.session import Session
from poundlock.spark.launch.spark_launch import start_spark


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    settings = load_settings([f"state_dir={tmp_path_factory.mktemp('jvm')}", "master=local[2]", "driver_memory=1g"])
    session = start_spark(
        Job("shared", spark={"spark.sql.shuffle.partitions": "1"}), settings, log="jvm.log", quick_start=False,
        say=lambda line: None,
    )  # fmt: skip
    yield session.sql
    session.stop()


@pytest.fixture
def shared_jvm(jvm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every driver of a file of tests the one session; what would end it ends its queries."""

    class Shared(Session):
        def stop(self, patience_s: float = 0) -> None:
            for query in jvm.streams.active:
                query.stop()

        kill = stop

    def start(job: Job, settings: Any, *_: Any, **__: Any) -> Session:
        return Shared(jvm.sparkContext, None, jvm)

    monkeypatch.setattr(assembly, "start_spark", start)
