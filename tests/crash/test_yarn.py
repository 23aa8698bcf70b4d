"""A real resource manager, node manager and HDFS: the driver here, the tasks in containers, one of which is killed."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from poundlock.runtime.jars import pyspark_jars
from poundlock.runtime.java import find_java
from poundlock.storage import open_storage
from poundlock.testing.events import ReferenceEvents
from poundlock.testing.hdfs import EmbeddedHdfs
from poundlock.testing.job_process import completed
from poundlock.testing.lives import Lives
from poundlock.testing.yarn import EmbeddedYarn

pytestmark = [pytest.mark.crash, pytest.mark.engine, pytest.mark.torture]

JOB = Path(__file__).parent / "jobs" / "files_to_files.py"


def test_an_executor_is_killed_on_yarn(tmp_path: Path) -> None:
    given, produced = tmp_path / "in", []
    given.mkdir()

    def produce(count: int) -> None:
        first = len(produced)
        values = list(ReferenceEvents(count=count, malformed=0, first_serial=first))
        hidden = given / f".{first:09d}"
        hidden.write_bytes(b"".join(value + b"\n" for value in values))
        hidden.rename(given / f"{first:09d}.log")
        produced.extend(values)

    with EmbeddedHdfs() as hdfs, EmbeddedYarn(hdfs.uri) as yarn:
        environment = {
            "HADOOP_CONF_DIR": str(yarn.conf), "CRASH_IN": str(given), "CRASH_OUT": f"{hdfs.uri}/out",
            "CRASH_CHECKPOINTS": f"{hdfs.uri}/checkpoints", "CRASH_DEAD_LETTERS": f"{hdfs.uri}/dead",
        }  # fmt: skip
        conf = {
            "spark.yarn.jars": f"local:{pyspark_jars()}/*",
            "spark.executor.memory": "512m",
            "spark.yarn.am.memory": "512m",
            "spark.executorEnv.JAVA_HOME": find_java().home,
            "spark.yarn.appMasterEnv.JAVA_HOME": find_java().home,
        }
        arguments = ["--master", "yarn", "-p", "2", "-D", "executor_timeout=5 min"]
        for key, value in conf.items():
            arguments += ["--conf", f"{key}={value}"]
        with Lives(JOB, environment=environment, folder=tmp_path, arguments=arguments, patience_s=900) as lives:
            produce(2_000)
            job = lives.start(CRASH_WATCH="1")
            killed = False
            for _ in range(4):
                at = max((completed(line.value) for line in job.lines()), default=-1)
                produce(3_000)
                reached = job.wait_line(lambda value, at=at: completed(value) > at, seconds=900)  # type: ignore[misc]
                assert reached is not None, job.log_tail()
                if not killed and (executors := yarn.executors()):
                    produce(3_000)
                    time.sleep(random.random())
                    executors[0].kill()
                    killed = True
            assert killed
            assert [app["state"] for app in yarn.applications()] == ["RUNNING"]
            assert lives.stop(job) == 0
            assert lives.run(CRASH_WATCH="0") == [0]
            assert lives.left_behind() == []
        out = open_storage(f"{hdfs.uri}/out")
        names = [entry.path for entry in out.list()]
        assert [name for name in names if name.rpartition("/")[2].startswith(".")] == []
        lines = Counter(line for name in names for line in out.read(name).splitlines())
        assert lines == Counter(produced)
