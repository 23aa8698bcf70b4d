"""One JVM for all jobs of a file of tests: starting one costs more than most of what they look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from poundlock import Job
from poundlock.config import load_settings
from poundlock.runtime import assembly
from poundlock.runtime import session as sessions
from poundlock.runtime.backends import backend_conf
from poundlock.runtime.starting import start_spark, stop_spark


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    settings = load_settings([f"state_dir={tmp_path_factory.mktemp('jvm')}", "master=local[2]", "driver_memory=1g"])
    spark = start_spark(
        Job("shared", spark={"spark.sql.shuffle.partitions": "1"}), settings, (), log="jvm.log", quick_start=False,
        store=None, say=lambda line: None,
    )  # fmt: skip
    yield spark
    stop_spark(spark)


@pytest.fixture
def shared_jvm(jvm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every driver of a file of tests the one session; what would end it ends its queries."""

    def start(job: Job, settings: Any, *_: Any, **__: Any) -> Any:
        for key, value in backend_conf(job, settings).items():
            jvm.conf.set(key, value)
        return jvm

    def stop(*_: Any) -> None:
        for query in jvm.streams.active:
            query.stop()
        sessions.await_tasks(jvm)

    monkeypatch.setattr(assembly, "start_spark", start)
    monkeypatch.setattr(assembly, "stop_spark", stop)
    monkeypatch.setattr(sessions, "kill_jvm", stop)
