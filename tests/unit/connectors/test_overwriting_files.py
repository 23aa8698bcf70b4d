"""A file sink that replaces what is there: old files go behind the decision of the end, whenever the driver dies."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from poundlock.checkpoint.participant import Occasion
from poundlock.connectors.files.buckets.assigners import BUCKET_COLUMN, ExpressionBucketAssigner
from poundlock.connectors.files.file_values import FileCommittable
from poundlock.connectors.files.sink.rolling import RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.errors import CommitUnknown, TerminalError
from poundlock.storage.local import LocalStorage
from support.sinks import FileSinkHarness, batch


def sink(folder: Path, *always: str, partitioned: bool = False) -> FileSinkHarness:
    bucket: dict[str, Any] = {"bucket": ExpressionBucketAssigner("`bucket`")} if partitioned else {}
    rolling = RollingPolicy(on_checkpoint=True)
    return FileSinkHarness(FileSink(str(folder), row="value", rolling=rolling, overwrite=always, **bucket))


def before(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"old {path}\n")


def visible(folder: Path) -> dict[str, str]:
    files = [each for each in folder.rglob("*") if each.is_file() and not each.name.startswith(".")]
    return {each.relative_to(folder).as_posix(): each.read_text() for each in files}


def test_nothing_changes_before_the_end_and_all_is_new_behind_it(tmp_path: Path) -> None:
    before(tmp_path, "part-0-0", "sub/x", "_SUCCESS")
    old = visible(tmp_path)
    files = sink(tmp_path, "")
    for row in (b"a", b"b"):
        files.write(batch(value=[row]))
        assert files.end_checkpoint() == []
        files.crash()
    assert visible(tmp_path) == old
    decided = files.decide(Occasion.END)
    assert visible(tmp_path) == old
    files.commit(decided)
    made = visible(tmp_path)
    assert sorted(made.values()) == ["a\n", "b\n", "old _SUCCESS\n"]
    assert "part-0-0" not in made
    files.commit(decided)  # whoever asks again changes nothing
    assert visible(tmp_path) == made
    assert files.decide(Occasion.END) == []
    assert files.hidden() == []


def test_a_bucket_that_gets_no_row_stays_unless_it_is_named(tmp_path: Path) -> None:
    before(tmp_path, "k=a/x", "k=b/x", "k=c/x")
    files = sink(tmp_path, "k=c", partitioned=True)
    files.write(batch(**{"value": [b"new"], BUCKET_COLUMN: ["k=a"]}))
    files.end_checkpoint(Occasion.END)
    made = visible(tmp_path)
    assert {path.partition("/")[0]: text for path, text in made.items()} == {"k=a": "new\n", "k=b": "old k=b/x\n"}


def test_no_row_at_all_empties_what_is_named(tmp_path: Path) -> None:
    before(tmp_path, "x")
    files = sink(tmp_path, "")
    (decided,) = files.decide(Occasion.END)
    assert (decided["segments"], decided["v"]) == ([], 2)
    assert not files.sink.inspect(decided)
    files.commit([decided])
    assert visible(tmp_path) == {}


@pytest.mark.parametrize("calls", range(9))
def test_a_death_at_any_call_of_the_commit_is_seen_through(
    calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(tmp_path, "part-0-0", "old-1", "old-2")
    files = sink(tmp_path, "")
    for row in (b"a", b"b"):
        files.write(batch(value=[row]))
        files.end_checkpoint()
    decided = files.decide(Occasion.END)
    left = calls

    def counted(name: str) -> Any:
        real = vars(LocalStorage)[name]

        def call(self: LocalStorage, *arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError("died")
            return real(self, *arguments)

        return call

    with monkeypatch.context() as patch:
        for name in ("rename", "delete", "stat"):
            patch.setattr(LocalStorage, name, counted(name))
        for committable in decided:
            try:
                files.sink.commit(committable)
            except CommitUnknown:
                break
    seen = visible(tmp_path)
    assert set(seen.values()) >= {"old old-1\n", "old old-2\n"} or "a\n" in seen.values() or "b\n" in seen.values()
    outcomes = list(FileSink(str(tmp_path), row="value").commit_many(json.loads(json.dumps(decided))))
    assert not any(isinstance(each, Exception) for each in outcomes)
    assert sorted(visible(tmp_path).values()) == ["a\n", "b\n"]
    assert files.hidden() == []


def test_a_file_of_the_same_name_that_came_later_is_not_the_one_that_was_replaced(tmp_path: Path) -> None:
    before(tmp_path, "x")
    files = sink(tmp_path, "")
    decided = files.decide(Occasion.END)
    files.commit(decided)
    (tmp_path / "x").write_text("old x\n")  # as long as the old one
    os.utime(tmp_path / "x", (1, 1))
    files.commit(decided)
    assert visible(tmp_path) == {"x": "old x\n"}


def test_hidden_files_of_a_sink_that_waits_for_the_end_are_no_orphans(tmp_path: Path) -> None:
    files = sink(tmp_path, "")
    files.sink = files.sink.bind(job_id="0123456789abcdef0123456789abcdef", sink="out")
    files.write(batch(value=[b"a"]))
    files.end_checkpoint()
    assert len(files.hidden()) == 1
    assert list(files.sink.sweep(files.state, remove=False)) == []
    assert files.sink.rows_pending(files.state) == 1
    assert files.state["v"] == 2


def test_an_earlier_version_refuses_what_it_would_not_replace(tmp_path: Path) -> None:
    before(tmp_path, "x")
    decided = sink(tmp_path, "").decide(Occasion.END)
    newer = FileCommittable.FORMAT + 1
    with pytest.raises(TerminalError, match=f"format {newer}"):
        FileSink(str(tmp_path), row="value").commit({**decided[0], "v": newer})
