"""State backends: which one is meant, what a checkpoint was kept with, and what is let go of when a job starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from poundlock import DefinitionError, Job
from poundlock.config import load_settings
from poundlock.runtime.backends import (
    CHANGELOG,
    DEFAULT,
    FORMAT,
    PROVIDER,
    backend_conf,
    check_backend,
    forget_undecided,
    kept_with,
    state_backend_of,
)
from poundlock.storage import LocalStorage

STATE = "org.apache.spark.sql.execution.streaming.state"
MEMORY, ROCKSDB = f"{STATE}.HDFSBackedStateStoreProvider", f"{STATE}.RocksDBStateStoreProvider"


def named(job: Job, *options: str) -> str:
    return state_backend_of(job, load_settings(options))


def test_what_is_set_outside_wins_and_flinks_names_are_understood() -> None:
    assert named(Job("a")) == DEFAULT
    assert named(Job("a", state_backend="memory")) == "memory"
    assert named(Job("a", state_backend="memory"), "state_backend=rocksdb") == "rocksdb"
    assert named(Job("a"), "state.backend.type=hashmap") == "memory"
    assert backend_conf(Job("a", state_backend="rocksdb-changelog"), load_settings()) == {
        PROVIDER: ROCKSDB,
        FORMAT: "2",
        CHANGELOG: "true",
    }
    assert backend_conf(Job("a", state_backend="memory"), load_settings())[FORMAT] == "1", "it knows no other"


def test_sparks_own_setting_names_a_backend_too_but_not_another_one() -> None:
    assert named(Job("a", spark={PROVIDER: MEMORY})) == "memory"
    assert named(Job("a"), f"{PROVIDER}={ROCKSDB}") == "rocksdb_changelog"
    assert named(Job("a", spark={PROVIDER: ROCKSDB, CHANGELOG: "false"})) == "rocksdb"
    assert named(Job("a", spark={PROVIDER: "com.example.Mine"})) == "com.example.Mine"
    assert backend_conf(Job("a", spark={PROVIDER: "com.example.Mine"}), load_settings()) == {}
    with pytest.raises(DefinitionError, match=r"state_backend=rocksdb means .*providerClass="):
        named(Job("a", state_backend="rocksdb", spark={PROVIDER: MEMORY}))


@pytest.mark.parametrize("wrong", ["forst", "", 3, None])
def test_what_is_no_backend_is_refused(wrong: Any) -> None:
    if wrong is None:
        assert Job("a", state_backend=None).state_backend is None
        return
    with pytest.raises(DefinitionError, match="is not a state backend"):
        Job("a", state_backend=wrong)


def checkpoint(folder: Path, provider: str = MEMORY, state: bool = True) -> LocalStorage:
    spark = LocalStorage(str(folder))
    for batch in (8, 9, 10):
        conf = {PROVIDER: provider if batch == 10 else "older"}
        spark.create_exclusive(f"offsets/{batch}", f"v2\n{json.dumps({'conf': conf})}\nin:1".encode())
    if state:
        for name in ("10.delta", "11.delta", "12.delta", "12.snapshot", "_metadata/metadata"):
            spark.create_exclusive(f"state/0/1/{name}", b"x")
    return spark


def test_a_checkpoint_says_itself_what_keeps_its_state(tmp_path: Path) -> None:
    assert kept_with(LocalStorage(str(tmp_path / "none"))) is None
    assert kept_with(checkpoint(tmp_path / "a", state=False)) is None
    assert kept_with(checkpoint(tmp_path / "b")) == "memory"
    assert kept_with(checkpoint(tmp_path / "c", ROCKSDB)) == "rocksdb"
    assert kept_with(checkpoint(tmp_path / "d", "com.example.Mine")) == "com.example.Mine"
    (tmp_path / "b/offsets/10").write_text("v9\n")
    assert kept_with(LocalStorage(str(tmp_path / "b"))) is None, "of another format: that is Spark's to tell"


def test_another_backend_is_refused_and_a_changelog_is_no_other(tmp_path: Path) -> None:
    memory, rocksdb = checkpoint(tmp_path / "m"), checkpoint(tmp_path / "r", ROCKSDB)
    for wanted in ("rocksdb", "rocksdb_changelog"):
        check_backend(rocksdb, wanted, what="it", next="")
        with pytest.raises(DefinitionError, match="it has state that memory keeps, and the job says") as refused:
            check_backend(memory, wanted, what="it", next="begin anew")
        assert refused.value.next == "stay with state_backend=memory, for nothing can convert it; or begin anew"
    check_backend(memory, "memory", what="it", next="")
    with pytest.raises(DefinitionError, match="has state that rocksdb keeps"):
        check_backend(rocksdb, "memory", what="it", next="")


class Session:
    """Stands for a Spark session whose loaded state can be let go of."""

    def __init__(self) -> None:
        self.stopped = 0
        self._jvm = self

    def __getattr__(self, name: str) -> Any:
        if name not in (f"{STATE}.StateStore$", "MODULE$"):
            raise AttributeError(name)
        return self

    def stop(self) -> None:
        self.stopped += 1


def test_state_of_batches_that_were_never_decided_is_let_go_of(tmp_path: Path) -> None:
    """Batch 11 was run, its state is version 12, and it was not decided; run again it may read something else."""
    session, spark = Session(), checkpoint(tmp_path / "m")
    forget_undecided(spark, 10, session)
    assert sorted(spark.names("state/0/1")) == ["10.delta", "11.delta", "_metadata"]
    assert session.stopped == 1
    rocksdb, other = checkpoint(tmp_path / "r", ROCKSDB), Session()
    forget_undecided(rocksdb, 10, other)
    assert "12.delta" in rocksdb.names("state/0/1")
    assert other.stopped == 0
