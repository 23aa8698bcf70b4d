"""The suites for connectors: every check passes what is right and finds what is broken, and our own connectors pass them."""

from __future__ import annotations

import json
import os
import runpy
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from poundlock import DatagenSource, DefinitionError, FileSink, FileSource, PrintSink, SocketSource
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.testing import sink_conformance, source_conformance
from poundlock.testing.conformance import SINK_CHECKS, SOURCE_CHECKS, ConformanceError, visible_rows
from poundlock.testing.conformance.children import Children
from poundlock.testing.conformance.sink_rig import Subject
from poundlock.testing.conformance.source_rig import SourceSubject
from poundlock.testing.conformance.suites import check_sink, check_source
from support.box import BAD, MUTANTS, ROWS, SOURCE_MUTANTS, BoxSink, BoxSource, Undeclared, read_box

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "two_phase_file.py"
RAW = [{"value": b"line %d" % n} for n in range(24)]


@pytest.fixture(scope="module")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    """One process that starts all children of this module."""
    with Children(tmp_path_factory.mktemp("children")) as made:
        yield made


# --- the suite itself -------------------------------------------------------------------------------------------------


def box(kind: type[BoxSink] = BoxSink) -> Subject:
    return Subject(lambda folder: kind(str(folder)), read_box, ROWS, BAD, None, True)


def test_a_sink_that_is_right_passes_every_check(children: Children, tmp_path: Path) -> None:
    assert set(check_sink(box(), tmp_path, children).passed) == set(SINK_CHECKS)


def test_there_is_a_broken_sink_for_every_check() -> None:
    assert {check for check, _ in MUTANTS} == set(SINK_CHECKS)
    assert {check for check, _ in SOURCE_MUTANTS} == set(SOURCE_CHECKS)


@pytest.mark.parametrize(("check", "kind"), MUTANTS, ids=[f"{check}-{kind.__name__}" for check, kind in MUTANTS])
def test_a_broken_sink_is_found(check: str, kind: type[BoxSink], children: Children, tmp_path: Path) -> None:
    with pytest.raises(ConformanceError) as caught:
        check_sink(box(kind), tmp_path, children, only=[check])
    assert caught.value.report.failed == [check]
    text = str(caught.value)
    assert SINK_CHECKS[check] in text
    assert f"docs/own-connector.md, row {check}" in text


def test_what_is_reported_says_what_was_seen(children: Children, tmp_path: Path) -> None:
    kind = {k.__name__: k for _, k in MUTANTS}["CommitsACopy"]
    with pytest.raises(ConformanceError) as caught:
        check_sink(box(kind), tmp_path, children, only=["commit-twice", "commits"], skip={"commits": "later"})
    text = str(caught.value)
    assert text.startswith("CommitsACopy: 0 checks passed, 1 failed, 1 skipped\n")
    assert "commit-twice: after four commits of the same" in text
    assert "is there 4 times" in text
    assert caught.value.report.skipped == {"commits": "later"}


def source_at(folder: Path, kind: type[Undeclared] = BoxSource, **how: Any) -> Undeclared:
    path = folder / "lines"
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in ROWS[:12]) + b"{bad\n")
    return kind(str(path), **how)


def add(source: Undeclared) -> Sequence[dict[str, Any]]:
    with Path(source.path).open("ab") as file:
        file.write(b"".join(json.dumps(row).encode() + b"\n" for row in ROWS[12:18]))
    return ROWS[12:18]


def overwrite(source: Undeclared) -> None:
    """Write another number into the first line, which keeps its length."""
    path = Path(source.path)
    path.write_bytes(path.read_bytes().replace(b'"n": 0', b'"n": 7', 1))


def test_a_source_that_is_right_passes_every_check(children: Children, tmp_path: Path) -> None:
    bounded = SourceSubject(source_at, ROWS[:12], None, 1, 0, overwrite)
    assert set(check_source(bounded, tmp_path, children).passed) == set(SOURCE_CHECKS)
    growing = SourceSubject(lambda folder: source_at(folder, bounded=False), ROWS[:12], add, 1, 0)
    assert set(check_source(growing, tmp_path, children).passed) == set(SOURCE_CHECKS)


@pytest.mark.parametrize(
    ("check", "kind"), SOURCE_MUTANTS, ids=[f"{check}-{kind.__name__}" for check, kind in SOURCE_MUTANTS]
)
def test_a_broken_source_is_found(check: str, kind: type[BoxSource], children: Children, tmp_path: Path) -> None:
    subject = SourceSubject(lambda folder: source_at(folder, kind), ROWS[:12], None, 1, 0, overwrite)
    with pytest.raises(ConformanceError) as caught:
        check_source(subject, tmp_path, children, only=[check])
    assert caught.value.report.failed == [check]
    assert SOURCE_CHECKS[check] in str(caught.value)


def test_one_line_is_enough() -> None:
    sink_conformance(lambda folder: BoxSink(str(folder)), read=read_box, rows=ROWS, only=["commits"])
    source_conformance(source_at, rows=ROWS[:12], bad=1, only=["reads-all"])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: sink_conformance(BoxSink("x"), read=read_box, rows=ROWS), "is no function"),  # type: ignore[arg-type]
        (lambda: sink_conformance(BoxSink, read=read_box, rows=ROWS[:3]), "3 rows are too few"),
        (lambda: sink_conformance(BoxSink, read=read_box, rows=[{"n": 1}] * 12), "not unlike"),
        (lambda: source_conformance(BoxSource("x"), rows=ROWS), "is no function"),  # type: ignore[arg-type]
        (lambda: source_conformance(source_at, rows=ROWS, only=["speed"]), "no check 'speed'"),
    ],
)
def test_what_cannot_be_worked_with_is_refused(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        call()


# --- our own sinks ----------------------------------------------------------------------------------------------------


ALWAYS = RollingPolicy(on_checkpoint=True)
FILE_SINKS: dict[str, tuple[Sequence[dict[str, Any]], dict[str, Any]]] = {
    "raw": (RAW, {"row": "value"}),
    "raw, each checkpoint": (RAW, {"row": "value", "rolling": ALWAYS}),
    "json": (ROWS, {"format": "json"}),
    "csv": (ROWS, {"format": "csv", "columns": ["n", "text"], "rolling": ALWAYS}),
    "parquet": (ROWS, {"format": "parquet"}),
    "parquet, merged": (ROWS, {"format": "parquet", "compaction": FileCompaction(every_checkpoints=2)}),
    "avro": (ROWS, {"format": "avro"}),
}


WHOLE = ("raw", "parquet, merged")  # the others differ in how a row is written
PART = ("commits", "hidden", "commit-twice", "sweep-orphans", "crash.sink.committed", "crash-within-commit")


@pytest.mark.parametrize("name", FILE_SINKS)
def test_file_sink(name: str, children: Children, tmp_path: Path) -> None:
    rows, settings = FILE_SINKS[name]
    bad = [{"value": b"two\nlines"}] if "row" in settings else []
    subject = Subject(
        lambda folder: FileSink(str(folder), **settings),
        visible_rows,
        rows,
        bad,
        lambda sink: replace(sink, prefix="other"),  # as jobs that share a folder have to
        True,
    )
    report = check_sink(subject, tmp_path, children, only=None if name in WHOLE else PART)
    assert set(report.skipped) == ({"rejects"} if name in WHOLE and not bad else set())


def test_two_phase_commit_sink(children: Children, tmp_path: Path) -> None:
    sink = runpy.run_path(str(EXAMPLE))["FileTransactions"]

    def read(made: Any) -> list[dict[str, Any]]:
        files = [path for path in made.target.iterdir() if path.is_file()]
        return [{"value": line} for path in files for line in path.read_bytes().splitlines()]

    report = check_sink(Subject(lambda f: sink(str(f)), read, RAW, [], None, True), tmp_path, children)
    assert set(report.skipped) == {"rejects", "commit-many"}


@dataclass(frozen=True)
class PrintSinkToFile(PrintSink):
    """Stands for a terminal that can be looked at afterwards."""

    path: str = ""

    def print(self, text: str) -> None:
        with Path(self.path).open("a") as file:
            file.write(text)


def test_print_sink(children: Children, tmp_path: Path) -> None:
    def read(sink: PrintSinkToFile) -> list[dict[str, Any]]:
        lines = Path(sink.path).read_text().splitlines() if Path(sink.path).exists() else []
        assert {line.partition("> ")[0] for line in lines} <= {"out:1", "out:2", "out2:1", "out2:2"}
        return [json.loads(line.partition("> ")[2]) for line in lines]

    subject = Subject(lambda folder: PrintSinkToFile(path=str(folder / "printed")), read, ROWS, [], None, True)
    report = check_sink(subject, tmp_path, children)
    assert "crash.sink.committed" in report.passed
    assert "a sink that is append need not" in report.skipped.values()


# --- our own sources --------------------------------------------------------------------------------------------------


def files_source(folder: Path) -> FileSource:
    for name, rows in (("a.jsonl", ROWS[:12]), ("b.jsonl", ROWS[12:])):
        (folder / name).write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    with (folder / "b.jsonl").open("ab") as file:
        file.write(b"no json\n")
    return FileSource(
        str(folder), format="json", schema="n bigint, text string", split_size=100, max_bytes_per_checkpoint=250
    )


def test_file_source(children: Children, tmp_path: Path) -> None:
    assert not check_source(SourceSubject(files_source, ROWS, None, 1, 0, grow), tmp_path, children).skipped


def grow(source: FileSource) -> None:
    """Append to a file that was taken, and delete the other."""
    with (Path(source.path) / "a.jsonl").open("ab") as file:
        file.write(b'{"n": 99, "text": "behind its end"}\n')
    (Path(source.path) / "b.jsonl").unlink()


def write_again(source: FileSource) -> None:
    """Write both files again with as many bytes."""
    for path in Path(source.path).glob("*.jsonl"):
        before = path.stat().st_mtime_ns
        path.write_bytes(path.read_bytes().replace(b"row", b"new"))
        os.utime(path, ns=(before + 10_000_000, before + 10_000_000))


def test_a_file_that_is_written_again_with_as_many_bytes_is_refused(children: Children, tmp_path: Path) -> None:
    subject = SourceSubject(files_source, ROWS, None, 1, 0, write_again)
    assert check_source(subject, tmp_path, children, only=["replay-promise"]).passed == ["replay-promise"]


def test_a_source_that_declares_nothing_is_not_asked_to_keep_it(children: Children, tmp_path: Path) -> None:
    subject = SourceSubject(lambda folder: source_at(folder, Undeclared), ROWS[:12], None, 1, 0)
    report = check_source(subject, tmp_path, children, only=["replay-promise"])
    assert "does not declare" in report.skipped["replay-promise"]


def test_datagen_source(children: Children, tmp_path: Path) -> None:
    def make(folder: Path) -> DatagenSource:
        return DatagenSource(
            _numbered, schema="n bigint, text string", count=24, rows_per_checkpoint=7, rows_per_split=3
        )

    report = check_source(SourceSubject(make, ROWS, None, 0, 0), tmp_path, children)
    assert set(report.skipped) == {"rejects"}


def _numbered(n: int, rng: Any) -> dict[str, Any]:
    return {"n": n, "text": f"row {n}"}


class Peer:
    """Says some lines to who connects first, and hangs up; who comes later hears nothing."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, args=(list(lines),), daemon=True).start()

    def _serve(self, lines: list[bytes]) -> None:
        connection, _ = self._listening.accept()
        connection.sendall(b"".join(line + b"\n" for line in lines))
        connection.close()
        self._listening.close()


def test_socket_source(children: Children, tmp_path: Path) -> None:
    rows = [{"value": row["value"]} for row in RAW]
    report = check_source(
        SourceSubject(
            lambda folder: SocketSource("127.0.0.1", Peer([r["value"] for r in rows]).port), rows, None, 0, 20
        ),
        tmp_path,
        children,
        skip={
            "restart": "a peer's lines come in one checkpoint here; what was received is read again in test_sockets.py",
            "committed": "what was read and committed is deleted, and a second connection is refused",
        },
    )
    assert {"reads-all", "splits-pure", "replay", "monotone", "ends"} <= set(report.passed)


def test_children_leave_nothing(tmp_path: Path) -> None:
    with Children(tmp_path) as some:
        child = some.start(time.sleep, 60)
        pid = child.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
