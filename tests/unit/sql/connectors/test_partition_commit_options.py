"""Options of tables of files about their partitions: Flink's names, values and defaults, and what is refused by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from poundlock.connectors.files.partitions.commit import CommittedPartition, PartitionCommit
from poundlock.connectors.files.partitions.times import partition_ms
from poundlock.sql.connectors.filesystem import FilesystemTable
from poundlock.sql.errors import OptionError
from poundlock.sql.shell.option_names import option_names
from support.sql_tables import table_context

KIND = "'sink.partition-commit.policy.kind'='success-file'"


def commit_of(options: str, *, partitions: str = "dt, hr", is_batch: bool = False) -> PartitionCommit | None:
    by = f"PARTITIONED BY ({partitions})" if partitions else ""
    context = table_context(
        f"CREATE TABLE t (a INT, dt STRING, hr STRING) {by} WITH ('connector'='filesystem', 'path'='t', 'format'='json', {options})"
    )
    FilesystemTable().source(context)  # a table that is read may have the same options
    sink: Any = FilesystemTable().sink(replace(context, is_batch=is_batch), overwrite=False).sink
    made: PartitionCommit | None = sink.partition_commit
    return made


def given(options: str, **more: Any) -> PartitionCommit:
    made = commit_of(options, **more)
    assert made is not None
    return made


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of the user's beside the script."""
    (tmp_path / "own_partitions.py").write_text(
        "from datetime import datetime\n"
        "def time_of(keys, values):\n    return datetime.strptime(values[0], '%G-W%V-%u')\n"
        "def notify(partition):\n    partition.seen = True\n"
        "word = 'x'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("own_partitions", None)


def test_defaults_are_those_of_flink() -> None:
    made = given(KIND)
    assert (made.trigger, made.delay, made.watermark_time_zone, made.success_file_name) == (
        "process-time",
        timedelta(0),
        "UTC",
        "_SUCCESS",
    )
    assert made.policies == ("success-file",)


def test_all_options_are_taken() -> None:
    made = given(
        f"{KIND}, 'sink.partition-commit.trigger'='partition-time', 'sink.partition-commit.delay'='1 h',"
        " 'sink.partition-commit.watermark-time-zone'='Asia/Shanghai', 'sink.partition-commit.success-file.name'='_done',"
        " 'partition.time-extractor.kind'='default', 'partition.time-extractor.timestamp-pattern'='$dt $hr:00',"
        " 'partition.time-extractor.timestamp-formatter'='d MMM yyyy H:mm'"
    )
    assert (made.trigger, made.delay, made.success_file_name) == ("partition-time", timedelta(hours=1), "_done")
    time = datetime.fromtimestamp(
        partition_ms(made.time, made.watermark_time_zone, "dt=5 Jan 2026/hr=7") / 1000
    ).astimezone()
    assert time == datetime.fromisoformat("2026-01-04T23:00:00+00:00")


def test_nothing_is_committed_unless_it_is_asked_for() -> None:
    assert commit_of("'json.ignore-parse-errors'='true'") is None


def test_in_batch_mode_partitions_are_committed_at_the_end() -> None:
    assert given(f"{KIND}, 'sink.partition-commit.delay'='1 h'", is_batch=True).trigger == "end"


@pytest.mark.usefixtures("own")
def test_custom_is_a_python_function() -> None:
    made = given(
        "'sink.partition-commit.policy.kind'='custom, success-file', 'sink.partition-commit.policy.class'='own_partitions.notify',"
        " 'partition.time-extractor.kind'='custom', 'partition.time-extractor.class'='own_partitions.time_of'"
    )
    assert partition_ms(made.time, "UTC", "week=2026-W02-1") == 1_767_571_200_000
    function, file = made.policies
    assert (file, callable(function)) == ("success-file", True)
    assert CommittedPartition("t", "dt=1").path == "t/dt=1"


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("options", "kind", "why", "next"),
    [
        ("'sink.partition-commit.policy.kind'='metastore'", "bad_option_value", "tables of files have none", "success-file"),
        ("'sink.partition-commit.policy.kind'='mail'", "bad_option_value", "no policy 'mail'", "success-file"),
        ("'sink.partition-commit.policy.kind'='custom'", "missing_option", "needs a Python function", "policy.class"),
        ("'sink.partition-commit.delay'='1 h'", "missing_option", "commits nothing", "policy.kind"),
        ("'sink.partition-commit.trigger'='now'", "bad_option_value", "'now' cannot be", "process-time"),
        (f"{KIND}, 'sink.partition-commit.watermark-time-zone'='CET-ish'", "bad_option_value", "cannot be", "Berlin"),
        (f"{KIND}, 'sink.partition-commit.success-file.name'='a/b'", "bad_option_value", "cannot be", "_SUCCESS"),
        (f"{KIND}, 'sink.partition-commit.success'='a'", "unknown_option", "no option", "success-file.name"),
        (f"{KIND}, 'partition.time-extractor.kind'='custom'", "missing_option", "needs a Python function", "extractor.class"),
        (f"{KIND}, 'partition.time-extractor.class'='x.y'", "bad_option_value", "no effect", "custom"),
        (f"{KIND}, 'sink.partition-commit.policy.class'='x.y'", "bad_option_value", "no effect", "custom"),
        (f"{KIND}, 'partition.time-extractor.timestamp-pattern'='$dt $hour'", "unknown_column", "none of its partitions", "$hr"),
        (f"{KIND}, 'partition.time-extractor.timestamp-formatter'='YYYY'", "bad_option_value", "letter Y", "yyyy"),
        (f"{KIND}, 'partition.time-extractor.kind'='custom', 'partition.time-extractor.class'='own_partitions.word'",
         "bad_option_value", "no function word", "def word"),
        (f"{KIND}, 'partition.time-extractor.kind'='custom', 'partition.time-extractor.class'='nowhere.f'",
         "bad_option_value", "no module nowhere", "beside the script"),
        (f"{KIND}, 'partition.time-extractor.kind'='custom', 'partition.time-extractor.class'='own_partitions.time_of',"
         " 'partition.time-extractor.timestamp-pattern'='$dt'", "bad_option_value", "no effect beside", "default"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(options: str, kind: str, why: str, next: str) -> None:
    with pytest.raises(OptionError) as error:
        commit_of(options)
    assert error.value.kind == kind
    assert why in error.value.what
    assert next in str(error.value.next)


def test_a_table_without_partitions_has_none_to_commit() -> None:
    with pytest.raises(OptionError, match="t has no partitions"):
        commit_of(KIND, partitions="")


def test_the_shell_knows_the_options() -> None:
    assert {
        "sink.partition-commit.policy.kind",
        "partition.time-extractor.timestamp-pattern",
        "compaction.file-size",
    } <= set(option_names("filesystem"))
