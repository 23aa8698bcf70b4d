"""PrintSink: what is printed, and when. The suite of tests/conformance/test_kit.py has the rest."""

from __future__ import annotations

import io
import sys

import pyarrow as pa
import pytest

from poundlock import CommitUnknown, DefinitionError, PrintSink
from poundlock.checkpoint.participant import Occasion, Prepared, WriterContext
from support.sinks import JOB, batch, lines


def prepared(sink: PrintSink, *chunks: object, subtask: int = 0) -> list[Prepared]:
    writer = sink.open_writer(WriterContext(JOB, "shown", 1, 0, subtask, "a", {}, lambda reject: None, 0))
    for chunk in chunks:
        assert writer.write(chunk) == len(chunk)  # type: ignore[arg-type]
    return [Prepared("shown", subtask, payload) for payload in writer.prepare()]


def show(sink: PrintSink, *chunks: object, subtask: int = 0) -> None:
    for committable in sink.stage({}, prepared(sink, *chunks, subtask=subtask), Occasion.CHECKPOINT, 0).committables:
        sink.commit(committable)


def test_rows_are_printed_behind_name_and_subtask(capsys: pytest.CaptureFixture[str]) -> None:
    show(PrintSink(), lines(b"x", b"\xff y"), subtask=2)
    show(PrintSink(name="seen"), batch(n=[1], at=pa.array([0], pa.timestamp("us", "UTC")), user=["ü"]))
    assert capsys.readouterr().out == (
        'shown:3> x\nshown:3> \ufffd y\nseen:1> {"n": 1, "at": "1970-01-01 00:00:00+00:00", "user": "ü"}\n'
    )


def test_nothing_is_printed_before_the_decision(capsys: pytest.CaptureFixture[str]) -> None:
    assert prepared(PrintSink(), lines(b"x"))
    assert prepared(PrintSink()) == []
    assert capsys.readouterr().out == ""


def test_of_many_rows_some_are_printed_and_the_others_counted(capsys: pytest.CaptureFixture[str]) -> None:
    show(PrintSink("stderr", limit=3), lines(b"a", b"b"), lines(b"c", b"d"), lines(b"e"))
    assert capsys.readouterr().err == "shown:1> a\nshown:1> b\nshown:1> c\nshown:1> … and 2 more\n"


def test_an_output_that_is_gone_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, text: str) -> None:
            raise BrokenPipeError("gone")

    monkeypatch.setattr(sys, "stdout", Gone())
    with pytest.raises(CommitUnknown, match="cannot print to stdout: gone"):
        show(PrintSink(), lines(b"x"))


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("ascii", "\\xfc \\u6c34"), ("latin-1", "ü \\u6c34"), ("cp1251", "\\xfc \\u6c34"), ("utf-8", "ü 水")],
)
def test_letters_that_an_output_does_not_have_are_escaped(
    encoding: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are decided: a terminal that cannot show them must not stop the job for ever."""
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding))
    show(PrintSink(), lines("ü 水".encode(), b"x"))
    assert out.getvalue() == f"shown:1> {shown}\nshown:1> x\n".encode(encoding)


def test_settings_are_checked() -> None:
    with pytest.raises(DefinitionError, match="stdout"):
        PrintSink("printer")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="prints nothing"):
        PrintSink(limit=0)
    assert PrintSink().describe() == (
        "print to stdout of the driver (up to 1000 rows a task and checkpoint; at-least-once)"
    )
