"""Runs as files: one that was written long ago, and what happens to those that are missing, cut short or changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import TerminalError
from poundlock.formats.arrays import binary_array
from poundlock.operators.keyed.codec import decode, encode, encode_key
from poundlock.state.hashing import hashes_of
from poundlock.state.manifest import RunFile
from poundlock.state.runs.columns import Rows
from poundlock.state.runs.files import parse_name, run_name
from poundlock.state.runs.run import FORMAT, DamagedRunError, Removal, Run, digest_of
from poundlock.state.runs.timers import EVENT_TIMERS, timer_rows
from poundlock.state.runs.writing import HELD, RunWriter
from support.examples import examples

GOLDEN = Path(__file__).parent / "data" / "run_format_1.arrow"
OPERATORS = {1: "counts", 2: "windows"}


def rows_of(entries: dict[Any, Any]) -> Rows:
    keys = sorted(entries, key=lambda key: int(hashes_of([key])[0]))
    values = [None if entries[key] is None else encode(entries[key]) for key in keys]
    return Rows(hashes_of(keys), binary_array([encode_key(key) for key in keys]), None, binary_array(values))


def example(held: int = HELD) -> tuple[pa.Buffer, int]:
    names = ["a", "b"]
    timers = timer_rows(
        hashes_of(names), binary_array([encode_key(n) for n in names]), None, np.array([20, 10]), [1 << 32, None]
    )
    sections = [
        ((1, "state:count", None), rows_of({"a": 1, "b": None, ("c", 2): [1, "two"]})),
        ((1, EVENT_TIMERS, None), timers),
        ((2, "contents", (0, 10)), rows_of({"a": [3, 4.5]})),
    ]
    cuts = [Removal(2, "contents", (0, 5), 0, 64), Removal(1, EVENT_TIMERS, None, 0, 64, 9)]
    writer = RunWriter(held=held)
    for key, rows in sections:
        for row in range(len(rows)):
            writer.add(key, rows.slice(row, row + 1))
    return writer.content(cuts, max_parallelism=128, operators=OPERATORS)


def file_of(data: Any, rows: int = 6) -> RunFile:
    return RunFile(
        name="state/j/000000000007-000001-g00000-a.arrow",
        digest=digest_of(data),
        bytes=len(memoryview(data)),
        rows=rows,
        checkpoint=7,
        first=0,
        stop=64,
    )


def check(run: Run) -> None:
    counts = run.section_rows((1, "state:count", None))
    assert counts is not None
    held = zip(counts.keys.to_pylist(), counts.values.to_pylist(), strict=True)
    found = {decode(key): None if value is None else decode(value) for key, value in held}
    assert found == {"a": 1, "b": None, ("c", 2): [1, "two"]}
    assert counts.hashes.tolist() == sorted(hashes_of(list(found)).tolist())
    timers = run.section_rows((1, EVENT_TIMERS, None))
    assert timers is not None
    assert timers.times_or_none().tolist() == [10, 20]
    assert run.section_rows((2, "contents", (0, 10))) is not None
    assert run.section_rows((2, "contents", (0, 20))) is None
    assert [cut.before for cut in run.cuts[1, EVENT_TIMERS, None]] == [9]
    assert run.index.operators == OPERATORS


def test_a_run_gives_back_what_was_written(tmp_path: Path) -> None:
    data, rows = example()
    (tmp_path / "r").write_bytes(data)
    assert rows == 6
    check(Run(file_of(data), str(tmp_path / "r")))


def test_a_run_of_format_1_can_be_read_for_all_time() -> None:
    data = GOLDEN.read_bytes()
    check(Run(file_of(data), str(GOLDEN)))


def test_people_can_read_a_run_with_pyarrow(tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(example()[0])
    with pa.memory_map(str(tmp_path / "r")) as mapped:
        table = pa.ipc.open_file(mapped).read_all()
    assert table.schema.names == ["hash", "key", "value", "time"]
    index = json.loads(table.schema.metadata[b"poundlock.state"])
    assert index["operators"] == {"1": "counts", "2": "windows"}
    assert index["sections"][2] == {"operator": 2, "table": "contents", "namespace": [0, 10], "row": 5, "rows": 1}


def test_a_missing_file_is_named_with_its_groups_and_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(
        DamagedRunError, match=r"g00000-a.arrow, written at checkpoint 7 for key groups 0 to 63, cannot be opened"
    ):
        Run(file_of(example()[0]), str(tmp_path / "gone"))


@pytest.mark.parametrize("held", [0, 60, 120, 200])
def test_what_waits_on_disk_is_written_as_what_is_held(held: int) -> None:
    assert example(held) == example()


@examples(60)
@given(st.data())
def test_a_file_that_was_cut_or_changed_anywhere_is_refused(data: st.DataObject) -> None:
    import tempfile

    whole = example()[0].to_pybytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    bad = (
        whole[:place]
        if cut
        else whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :]
    )
    with tempfile.NamedTemporaryFile() as file:
        file.write(bad)
        file.flush()
        with pytest.raises(DamagedRunError):
            Run(file_of(whole), file.name)


def test_a_file_that_is_no_run_is_refused(tmp_path: Path) -> None:
    bad = b"ARROW1\0\0 but nothing behind it"
    (tmp_path / "r").write_bytes(bad)
    with pytest.raises(DamagedRunError, match="cannot be read"):
        Run(file_of(bad), str(tmp_path / "r"))


def test_a_run_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    data = example()[0].to_pybytes()
    assert FORMAT == 1
    newer = data.replace(b'{"format":1,', b'{"format":2,')
    assert newer != data
    (tmp_path / "r").write_bytes(newer)
    with pytest.raises(TerminalError, match="has format 2; this version reads up to 1"):
        Run(file_of(newer), str(tmp_path / "r"))


def test_an_index_with_a_field_this_version_does_not_know_can_be_read() -> None:
    index = msgspec.json.decode(b'{"format":1,"max_parallelism":1,"operators":{},"sections":[],"cuts":[],"new":1}')
    from poundlock.state.runs.run import RunIndex

    assert msgspec.convert(index, RunIndex).max_parallelism == 1


def test_names_tell_checkpoint_and_epoch() -> None:
    name = run_name("0af3", 3, 17, 64, "t5.1a2b")
    assert name == "state/0af3/000000000017-000003-g00064-t5.1a2b.arrow"
    assert parse_name(name) == (17, 3)
    assert parse_name(run_name("0af3", 3, 17, -1, "x")) == (17, 3)
    assert parse_name("state/0af3/.tmp-1-2-3-4.arrow") is None
    assert parse_name("state/0af3/notes.txt") is None
