"""What is said of machines that a job's tasks could not work on, and of a cluster that takes everything away."""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkStageInfo

from poundlock import DatagenSource, FileSink, FileSource, Job, TumblingProcessingTimeWindows
from poundlock.errors import DefinitionError, PoundlockError
from poundlock.plan.plan import make_plan
from poundlock.spark import executors
from poundlock.spark.executors import ApplicationLost, Needs, Watch, look, needs_of


def test_what_a_job_needs(tmp_path: Path) -> None:
    job = Job("needs", dead_letters=str(tmp_path / "dead"))
    rows = job.from_source(FileSource(str(tmp_path / "in"), format="text"), name="rows")
    rows.sink_to(FileSink(f"{tmp_path}/out", row="value"), name="out")
    needs = needs_of(make_plan(job), str(tmp_path / "checkpoint"))
    assert needs.read == [str(tmp_path / "in")]
    assert set(needs.written) == {
        str(tmp_path / "out"),
        str(tmp_path / "dead"),
    }  # without state no task needs the checkpoint
    assert "pyarrow" in needs.modules


def test_tasks_with_state_need_the_checkpoint(tmp_path: Path) -> None:
    job = Job("state", on_error="fail")
    rows = job.from_source(DatagenSource(rate=1), name="rows")
    counts = rows.window_all(TumblingProcessingTimeWindows("1 s")).aggregate("count(*) as n", name="counts")
    counts.sink_to(FileSink(f"{tmp_path}/out", format="json"), name="out")
    assert str(tmp_path / "checkpoint") in needs_of(make_plan(job), str(tmp_path / "checkpoint")).written


@pytest.mark.parametrize(
    ("needs", "marks", "what", "next"),
    [
        (Needs(modules=["no_such_module"]), {}, "cannot import no_such_module", "--archives env.tar.gz#env"),
        (Needs(), {"/somewhere": "mark"}, "/somewhere is a folder of one machine", "hdfs://"),
        (Needs(read=["/no/such/input"]), {}, "do not find it", "put the input where all machines see it"),
    ],
)
def test_what_is_missing_on_a_machine_is_said(needs: Needs, marks: dict[str, str], what: str, next: str) -> None:
    said = look(Needs(modules=needs.modules if needs.modules == ["no_such_module"] else [], read=needs.read), marks)
    with pytest.raises(DefinitionError, match=what) as raised:
        executors._judge(said, executors._NEXT_OWNED)
    assert socket.gethostname() in raised.value.what
    assert next in raised.value.next


def test_a_machine_that_has_everything_is_fine(tmp_path: Path) -> None:
    (tmp_path / "mark").touch()
    executors._judge(
        look(Needs(modules=["json"], read=[str(tmp_path)]), {str(tmp_path): "mark"}), executors._NEXT_OWNED
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark cannot run",
            "the cluster's tasks run Python 3.9, and the driver runs 3.",
        ),
        ('java.io.IOException: Cannot run program "./env/bin/python": error=2', "machines have no ./env/bin/python"),
        ("ModuleNotFoundError: No module named 'pyspark'", "has no module pyspark"),
    ],
)
def test_why_no_task_ran_at_all(text: str, what: str) -> None:
    error = executors._unfit(RuntimeError(text))
    assert isinstance(error, DefinitionError)
    assert what in error.what
    assert "--archives" in error.next
    assert isinstance(executors._unfit(RuntimeError("other")), PoundlockError)


class Cluster:
    """Stands for a session, its context and its status tracker."""

    master = "spark://h:1"

    def __init__(self) -> None:
        self.stages, self.alive, self.jvm_alive = [stage(running=1)], True, True
        self.conf: dict[str, str] = {}
        self.context = self

    def statusTracker(self) -> Cluster:
        return self

    def getConf(self) -> dict[str, str]:
        return self.conf

    def getActiveStageIds(self) -> list[int]:
        return list(range(len(self.stages)))

    def getStageInfo(self, index: int) -> SparkStageInfo:
        return self.stages[index]


def stage(running: int = 0, completed: int = 0, failed: int = 0) -> SparkStageInfo:
    return SparkStageInfo(7, 0, "work", 4, running, completed, failed)


def test_work_without_executors_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(executors, "time", SimpleNamespace(monotonic=lambda: now))
    cluster = Cluster()
    watch = Watch(cluster, timedelta(seconds=10))  # type: ignore[arg-type]
    watch.check()
    cluster.stages = [stage()]
    now += 2
    watch.check()
    now += 9
    cluster.stages = [stage(completed=1)]  # a task ran between two looks
    watch.check()
    now += 9
    watch.check()
    cluster.stages = []
    now += 60
    watch.check()  # nothing to do, so no executor is needed
    cluster.stages = [stage(completed=1)]
    now += 2
    watch.check()
    now += 11
    with pytest.raises(ApplicationLost, match="has given no executor for 10 s"):
        watch.check()


def test_attempts_that_died_leave_something_behind_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(executors, "time", SimpleNamespace(monotonic=lambda: now))
    cluster = Cluster()
    watch = Watch(cluster, timedelta(seconds=10))  # type: ignore[arg-type]
    watch.check()
    assert not watch.leaves_leftovers
    cluster.stages = [stage(running=1, failed=1)]
    now += 62
    watch.check()
    assert watch.leaves_leftovers
    assert not watch.leaves_leftovers


def test_an_application_that_the_cluster_ended_is_noticed() -> None:
    cluster = Cluster()
    cluster.alive = False
    with pytest.raises(ApplicationLost, match="has ended the application"):
        Watch(cluster, timedelta(seconds=10)).check()  # type: ignore[arg-type]
