"""One JVM for all jobs of a file of tests: starting one costs more than most of what they look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from poundlock.spark.launch.session import Session

SPARK = {
    "spark.sql.shuffle.partitions": "1",
    # A file of tests lasts a minute: compiling further than C1 would cost more than it gives back.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@dataclass(frozen=True)
class Ready:
    """What a driver gets where Spark is there already."""

    made: Session

    def session(self) -> Session:
        return self.made

    def cancel(self) -> None:
        """Nothing was begun."""


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session for a file of tests. Its tasks know the environment of its start, not what a test sets later."""
    from poundlock import Job
    from poundlock.config import load_settings
    from poundlock.spark.launch.spark_launch import begin_spark

    settings = load_settings([f"state_dir={tmp_path_factory.mktemp('jvm')}", "master=local[2]", "driver_memory=1g"])
    session = begin_spark(
        Job("shared", spark=SPARK), settings, log="jvm.log", quick_start=False, exchanges=True, say=lambda line: None
    ).session()
    yield session.sql
    session.stop()


@pytest.fixture
def shared_jvm(jvm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every driver of a file of tests the one session; what would end it ends its queries."""
    from poundlock.driver import context as assembly
    from poundlock.driver import driver
    from poundlock.driver.interactive import replay

    class Shared(Session):
        def stop(self, patience_s: float = 0) -> None:
            for query in jvm.streams.active:
                query.stop()

        kill = stop

    def begin(*_: Any, **__: Any) -> Ready:
        return Ready(Shared(jvm.sparkContext, None, jvm))

    monkeypatch.setattr(assembly, "begin_spark", begin)
    monkeypatch.setattr(replay, "begin_spark", begin)
    monkeypatch.setattr(driver, "refuse_second_session", lambda: None)
