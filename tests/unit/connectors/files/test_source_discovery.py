"""Discovery takes each file once, whatever dies in between, and positions mean the same for ever."""

from __future__ import annotations

import itertools
import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.connectors.files.source.discovery import DiscoveryLog, Selection, split_glob
from poundlock.connectors.files.source.enumerator import FileEnumerator, Limits
from poundlock.connectors.files.source.source import FileSource
from poundlock.errors import TerminalError
from poundlock.storage import Entry, LocalStorage
from poundlock.values import ManualClock
from support.examples import examples


class Crash(Exception):
    """The process dies here."""


class CrashingStorage(LocalStorage):
    """A storage whose process dies before or after its next exclusive write."""

    def __init__(self, root: str, crashes: list[str | None]) -> None:
        super().__init__(root)
        object.__setattr__(self, "crashes", crashes)

    def create_exclusive(self, path: str, data: bytes) -> bool:
        crash = self.crashes.pop(0) if self.crashes else None  # type: ignore[attr-defined]
        if crash == "before":
            raise Crash
        if crash == "race":  # another process, that looked earlier and saw less, was faster
            LocalStorage(self.root).create_exclusive(path, data.replace(b'"more":false', b'"more":true'))
        won = super().create_exclusive(path, data)
        if crash == "after":
            raise Crash
        return won


def entries(names: list[str]) -> Iterator[Entry]:
    return (Entry(name, len(name), 0) for name in names)


def logged(root: str) -> list[str]:
    log = DiscoveryLog(LocalStorage(root))
    return [f.path for i in range(len(log)) for f in log.files(i)]


@examples(60)
@given(
    looks=st.lists(st.sets(st.integers(0, 40)), min_size=1, max_size=5),
    crashes=st.lists(st.sampled_from([None, None, "before", "after", "race"]), max_size=12),
    per_entry=st.integers(1, 6),
)
def test_no_file_is_lost_or_taken_twice(looks: list[set[int]], crashes: list[str | None], per_entry: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        there: set[int] = set()
        storage = CrashingStorage(root, crashes)
        log = DiscoveryLog(storage, per_entry)
        for look in looks:
            there |= look
            while True:
                before = logged(root)
                try:
                    log.add("/data", entries([f"f{i}" for i in sorted(there)]), note_empty=True)
                    break
                except Crash:
                    log = DiscoveryLog(storage, per_entry)
                assert logged(root)[: len(before)] == before
        assert sorted(logged(root)) == sorted(f"f{i}" for i in there)
        assert log.complete


def enumerator(root: Path, names: dict[str, int], **options: Any) -> FileEnumerator:
    """Return an enumerator over files of given sizes that are not really there."""
    limits = Limits(
        options.get("split", 100), options.get("bytes", 1_000), options.get("files", 50), lambda p: not p.endswith("z")
    )
    return FileEnumerator(
        DiscoveryLog(LocalStorage(str(root)), options.get("per_entry", 7)),
        lambda: ("/data", (Entry(n, b, 0) for n, b in names.items())),
        limits,
        watch=options.get("watch", False),
        look_every_ms=1_000,
        clock=options.get("clock", ManualClock()),
        extra={},
    )


@examples(40)
@given(
    sizes=st.lists(st.one_of(st.just(0), st.integers(1, 500), st.integers(500, 3_000)), max_size=12),
    packed=st.sets(st.integers(0, 11)),
    split=st.integers(30, 400),
    limit=st.integers(100, 2_000),
    files=st.integers(1, 20),
)
def test_positions_cover_every_byte_once(
    sizes: list[int], packed: set[int], split: int, limit: int, files: int
) -> None:
    names = {f"f{i:03d}{'z' if i in packed else ''}": size for i, size in enumerate(sizes)}
    with tempfile.TemporaryDirectory() as root:
        options = {"split": split, "bytes": limit, "files": files}
        made = enumerator(Path(root), names, **options)
        covered: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
        position = made.initial()
        ends = [position]
        while not made.finished(position):
            end = made.latest(position)
            work = made.splits(position, end)
            parts = [part for s in work for part in s.payload["parts"]]
            total = sum(p["end"] - p["start"] for p in parts)
            assert total <= limit or len(parts) == 1
            for p in parts:
                covered[p["path"]].append((p["start"], p["end"]))
                assert p["end"] - p["start"] <= split or p["path"].endswith("z")
            position = end
            ends.append(end)
        for name, size in names.items():
            borders = sorted(covered[name])
            assert [b for _, b in borders[:-1]] == [a for a, _ in borders[1:]]
            assert (borders[0][0], borders[-1][1]) == (0, size) if size else not borders

        first, last = ends[0], ends[-1]
        later = enumerator(Path(root), {}, **options)  # another process plans the same work
        assert all(later.splits(a, b) == made.splits(a, b) for a, b in itertools.pairwise(ends))
        whole = [p for s in made.splits(first, last) for p in s.payload["parts"]]
        pieces = [p for a, b in itertools.pairwise(ends) for s in made.splits(a, b) for p in s.payload["parts"]]
        assert whole == pieces


def test_watching_looks_again_when_it_is_time(tmp_path: Path) -> None:
    clock, names = ManualClock(), {"a": 10}
    made = enumerator(tmp_path, names, watch=True, clock=clock)
    one = made.latest(made.initial())
    names["b"] = 10
    assert made.latest(one) == one
    clock.set(1_000)
    two = made.latest(one)
    assert [p["path"] for s in made.splits(one, two) for p in s.payload["parts"]] == ["b"]
    assert not made.finished(two)
    clock.set(9_000)
    assert made.latest(two) == two
    assert len(list(tmp_path.glob("log/*.json"))) == 2


def test_a_bounded_source_is_what_was_there_at_the_first_look(tmp_path: Path) -> None:
    names: dict[str, int] = {}
    made = enumerator(tmp_path, names)
    assert not made.finished(made.initial())
    assert made.latest(made.initial()) == made.initial()
    names["late"] = 5
    assert made.finished(made.initial())
    again = enumerator(tmp_path, names)
    assert again.latest(again.initial()) == again.initial()
    assert again.finished(again.initial())


def test_another_process_sees_what_was_discovered(tmp_path: Path) -> None:
    planner, driver = enumerator(tmp_path, {"a": 10}), enumerator(tmp_path, {})
    end = planner.latest(planner.initial())
    assert not driver.finished(planner.initial())
    assert driver.finished(end)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[", "it is no JSON"),
        ("[]", "it is no JSON object"),
        ('{"v": 2}', "format 2 is not known to this version"),
        ('{"v": 1}', "it has no root"),
        ('{"v": 1, "root": "r", "more": false, "files": 3}', "files is not what it should be"),
    ],
)
def test_a_damaged_log_is_said_in_words(tmp_path: Path, content: str, why: str) -> None:
    storage = LocalStorage(str(tmp_path))
    DiscoveryLog(storage).add("r", iter([Entry("a", 1, 1)]), note_empty=False)
    (path,) = tmp_path.glob("log/*")
    path.write_text(content)
    with pytest.raises(TerminalError, match=f"{path.name} cannot be read: {why}"):
        DiscoveryLog(storage)
    path.unlink()
    path.mkdir()
    with pytest.raises(TerminalError, match=f"{path.name} cannot be read: it is a folder"):
        DiscoveryLog(storage)


def test_a_lost_workspace_is_noticed(tmp_path: Path) -> None:
    made = enumerator(tmp_path / "one", {"a": 10})
    end = made.latest(made.initial())
    other = enumerator(tmp_path / "two", {"b": 10})
    for ask in (lambda: other.latest(end), lambda: other.splits(made.initial(), end), lambda: other.finished(end)):
        with pytest.raises(TerminalError, match="discovery log"):
            ask()


@pytest.mark.slow
def test_small_files_share_a_split_and_many_files_are_quick_to_plan(tmp_path: Path) -> None:
    names = {f"{i % 100}/f{i}": 1_000 for i in range(100_000)}
    made = enumerator(tmp_path, names, split=32 << 20, bytes=512 << 20, files=10_000, per_entry=10_000)
    position, batches, parts = made.initial(), 0, 0
    while not made.finished(position):
        end = made.latest(position)
        work = made.splits(position, end)
        assert len(work) < 100
        parts += sum(len(s.payload["parts"]) for s in work)
        position, batches = end, batches + 1
    assert (batches, parts) == (10, 100_000)


def test_names(tmp_path: Path) -> None:
    for name in (
        "a.json",
        "b.txt",
        ".hidden.json",
        "_tmp.json",
        "sub/c.json",
        "sub/_x/d.json",
        "sub/.y/e.json",
        "s/u/f.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    def found(path: str = "", **options: Any) -> list[str]:
        root, entries = FileSource(str(tmp_path) + path, **options)._look()
        return sorted(os.path.relpath(f"{root}/{e.path}", tmp_path) for e in entries)

    assert found() == ["a.json", "b.txt", "s/u/f.json", "sub/c.json"]
    assert found("/") == found()
    assert found(recursive=False) == ["a.json", "b.txt"]
    assert found(glob="*.json") == ["a.json", "s/u/f.json", "sub/c.json"]
    assert found(glob="s*/*.json") == ["sub/c.json"]
    assert found("/*.json") == ["a.json"]
    assert found("/s*/*.json") == ["sub/c.json"]
    assert found("/**/*.json") == ["a.json", "s/u/f.json", "sub/c.json"]
    assert found("/s/**") == ["s/u/f.json"]
    assert found("/[ab].*") == ["a.json", "b.txt"]
    assert found("/[!a].?xt") == ["b.txt"]
    assert found("/sub/c.json") == ["sub/c.json"]
    assert found("/.hidden.json") == [".hidden.json"]
    assert split_glob("*.json") == (".", "*.json")
    assert split_glob("/*/x") == ("/", "*/x")
    assert Selection("a[b").matcher().fullmatch("a[b")


def test_a_file_is_left_alone_until_it_settles(tmp_path: Path) -> None:
    clock = ManualClock(100_000)
    source = FileSource(str(tmp_path / "in"), watch=True, settle="5 s", discover_every="0 s", clock=clock)
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "a"
    file.write_bytes(b"x\n")
    os.utime(file, (98, 98))
    made = source.enumerator(LocalStorage(str(tmp_path / "work")))
    assert made.latest(made.initial()) == made.initial()
    clock.set(103_000)
    end = made.latest(made.initial())
    assert len(made.splits(made.initial(), end)) == 1
    assert "discovery 1, file 0, byte 0" in source.describe(end)
    assert pickle.loads(pickle.dumps(source)).path == source.path


@pytest.mark.parametrize("position", [(0, 1, 0), (0, 0, 7), (1, 0, 0), (1, 2, 0)])
def test_a_lost_log_is_never_replaced_by_what_is_there_now(tmp_path: Path, position: tuple[int, int, int]) -> None:
    """A new log counts other files: its first are not the ones that were read."""
    read = dict(zip(("log", "file", "offset"), position, strict=True))
    found = enumerator(tmp_path, {"new": 50, "newer": 50, "newest": 50})
    for ask in (found.latest, found.finished):
        with pytest.raises(TerminalError, match="has no entry"):
            ask(read)
    assert logged(str(tmp_path)) == []
