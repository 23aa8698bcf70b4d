"""In how many partitions state is wanted, and what is refused before anything is touched; no Spark is started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from poundlock import (
    DatagenSource,
    DefinitionError,
    FileSink,
    Job,
    TransientError,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from poundlock.config import load_settings
from poundlock.plan.plan import make_plan
from poundlock.runtime import rescaling
from poundlock.runtime.partitions import (
    PARTITIONS,
    Rescaling,
    kept_note,
    plan_rescaling,
    state_partitions,
    wanted_partitions,
)
from poundlock.runtime.restoring import Beginning, begin
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock
from support.saved import EVENTS, MEMORY, files_of, save


@pytest.mark.parametrize(
    ("options", "job", "wanted"),
    [
        ([], Job("a"), None),
        ([], Job("a", parallelism=3), 3),
        ([], Job("a", parallelism=3, spark={PARTITIONS: "5"}), 5),
        (["parallelism=6"], Job("a", parallelism=3, spark={PARTITIONS: "5"}), 6),
        (["parallelism=6", f"{PARTITIONS}=7"], Job("a", spark={PARTITIONS: "5"}), 7),
    ],
)
def test_what_is_said_outside_the_job_wins(options: list[str], job: Job, wanted: int | None) -> None:
    assert wanted_partitions(job, load_settings(options)) == wanted


@pytest.mark.parametrize("number", ["0", "many", "-1"])
def test_no_number_of_partitions(number: str) -> None:
    with pytest.raises(DefinitionError, match=f"{PARTITIONS}={number} is no number"):
        wanted_partitions(Job("a"), load_settings([f"{PARTITIONS}={number}"]))


def test_only_state_that_is_there_is_rescaled(tmp_path: Path) -> None:
    stateless = save(tmp_path / "a", positions={"clicks": EVENTS}, partitions=4)
    stateful = save(tmp_path / "b", positions={"clicks": EVENTS}, partitions=4, state=["win"])
    assert state_partitions(stateless) is None
    assert plan_rescaling(stateless, 8) is None
    assert state_partitions(stateful) == 4
    assert plan_rescaling(stateful, None) is None
    assert plan_rescaling(stateful, 4) is None
    found = plan_rescaling(stateful, 8)
    assert found is not None
    assert (found.before, found.after) == (4, 8)


def test_state_in_memory_cannot_be(tmp_path: Path) -> None:
    memory = save(tmp_path, positions={"clicks": EVENTS}, state=["win"], provider=MEMORY)
    before = files_of(tmp_path)
    with pytest.raises(
        DefinitionError, match="in 4 partitions in memory; only RocksDB's can be brought to 8"
    ) as caught:
        plan_rescaling(memory, 8)
    assert caught.value.next.startswith("restore it with -p 4")
    assert plan_rescaling(memory, 4) is None
    assert files_of(tmp_path) == before


def test_who_asks_a_running_checkpoint_for_another_number_is_told_how(tmp_path: Path) -> None:
    checkpoint = save(tmp_path, positions={"clicks": EVENTS}, partitions=4, state=["win"])
    note = kept_note(checkpoint, 8)
    assert note is not None
    assert note.startswith("State stays in 4 partitions; for 8: poundlock stop --savepoint-path DIR JOB")
    assert kept_note(checkpoint, 4) is None
    assert kept_note(checkpoint, None) is None
    assert kept_note(LocalStorage(str(tmp_path / "new")), 8) is None


class Manager:
    """Stands for Spark's: it fails, or does nothing."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def repartition(self, *_: Any, **__: Any) -> None:
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    ("error", "alive", "kind", "said"),
    [
        (
            RuntimeError("LAST_BATCH_FAILED: x\nat y"),
            True,
            DefinitionError,
            "from 4 to 8 partitions: LAST_BATCH_FAILED: x",
        ),
        (RuntimeError("No space left on device"), True, TransientError, "the disk is full"),
        (ConnectionError("gone"), False, TransientError, "Java process of Spark ended"),
        (None, True, Exception, "Spark left the state in 4 partitions"),
    ],
)
def test_whatever_fails_in_spark_is_told_in_two_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None, alive: bool, kind: Any, said: str
) -> None:
    checkpoint = save(tmp_path, positions={"clicks": EVENTS}, partitions=4, state=["win"])
    spark = SimpleNamespace(streams=None, _streamingCheckpointManager=Manager(error))
    stopped = []
    session = SimpleNamespace(sql=spark, jvm_alive=alive, stop=lambda: stopped.append(spark))
    monkeypatch.setattr(rescaling, "start_spark", lambda *_, **__: session)
    lines: list[str] = []
    with pytest.raises(kind, match=said) as caught:
        rescaling.rescale(
            Job("a"), load_settings([f"state_dir={tmp_path}"]), checkpoint.root, Rescaling(4, 8, "p"), say=lines.append
        )
    assert str(caught.value).count("\n") == 1
    assert stopped == [spark]
    assert lines == ["Rescaling state from 4 to 8 partitions"]


def test_a_restore_that_would_need_it_touches_nothing(tmp_path: Path) -> None:
    job = Job("made")
    stream = job.from_source(DatagenSource("user string, t timestamp"), name="in")
    (
        stream.assign_timestamps_and_watermarks(WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="t"))
        .key_by("user")
        .window(TumblingEventTimeWindows("1 s"))
        .aggregate("count(*) as n", name="win")
        .sink_to(FileSink(str(tmp_path / "out"), format="json"), name="out")
    )
    savepoint = save(
        tmp_path / "saved", positions={"in": {"row": 5}}, split=["in"], state=["win"], provider=MEMORY, sinks={}
    )
    before = files_of(tmp_path)

    def rescale(wanted: Rescaling) -> int:
        raise AssertionError("it must not come to this")

    def restored(partitions: int) -> None:
        begin(
            make_plan(job), LocalStorage(str(tmp_path / "checkpoint")), Beginning(savepoint.root),
            clock=SystemClock(), say=lambda line: None, partitions=partitions, rescale=rescale,
        )  # fmt: skip

    with pytest.raises(DefinitionError, match="partitions in memory"):
        restored(8)
    assert files_of(tmp_path) == before
    restored(4)
    assert (tmp_path / "checkpoint/job.json").exists()
