"""Records of a function's own type made straight from JSON, beside the same by way of dicts: results, dead letters, counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock import FileSink, FileSource, Job, KafkaSource
from poundlock.formats import ddl
from poundlock.formats.chunk import Batch, Chunk, FileOrigin, Lines, Records
from poundlock.formats.convert import to_records
from poundlock.formats.decode import Want, decoder
from poundlock.formats.encode import JsonEncoder
from poundlock.formats.object_rows import ObjectRows
from poundlock.formats.reject import Reject
from poundlock.operators.chain import Chain, Edge, Emit, Pass, Step, StepCounts
from poundlock.operators.records import as_dicts, record_maker, struct_rows
from poundlock.operators.user_functions import FlatMap, MapRecords
from poundlock.plan.explain import explain
from poundlock.stream.functions.records import RecordType
from support.examples import examples

COLUMNS = "n bigint, t string, x double, at timestamp, d decimal(8, 2), b boolean, r string not null"
NAMES = ("n", "t", "x", "at", "d", "b", "r")


class Named(NamedTuple):
    r: str
    n: int | None = None
    other: int = 7
    at: Any = None


@dataclass
class Data:
    t: str | None
    n: int | None = None
    other: list[int] = field(default_factory=list)


class Struct(msgspec.Struct):
    x: float | None
    word: str | None = msgspec.field(name="t", default=None)
    other: str = "o"


class One(NamedTuple):
    n: int | None


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 65), 1 << 65),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["1.25", "2018-12-19", 12.5, 1545184224, [], {"a": 1}, 10**9]),
)
GOOD = st.fixed_dictionaries(
    {"r": st.text(max_size=4), "n": st.integers(-5, 5)},
    optional={
        "t": st.none() | st.text(max_size=5),
        "x": st.floats(allow_nan=False, allow_infinity=False),
        "at": st.sampled_from(["2018-12-19T01:50:26Z", 1545184224.5, None]),
        "d": st.sampled_from(["1.25", 3, None]),
        "b": st.booleans(),
        "more": st.integers(),
    },
)


@st.composite
def line(draw: st.DrawFn) -> bytes:
    """A line: mostly a good object, its fields in any order and some twice; else one with a wrong value, or no object."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.sampled_from([b"", b"{", b"[1]", b"7", b'{"r":"\xff"}', b'{"r":"a"} {"r":"b"}', b"null"]))
    row: Mapping[str, Any] = draw(GOOD)
    pairs = draw(st.permutations(list(row.items())))
    if kind == 1:
        pairs += [(draw(st.sampled_from(NAMES)), draw(VALUES))]
    dump: Callable[[Any], str] = lambda value: json.dumps(value, ensure_ascii=draw(st.booleans()))  # noqa: E731
    return ("{" + ",".join(f"{dump(name)}:{dump(value)}" for name, value in pairs) + "}").encode("utf-8", "replace")


def lines_of(rows: list[bytes]) -> Lines:
    data = b"".join(row + b"\n" for row in rows)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64)
    return Lines(memoryview(data), ends, FileOrigin("/in", starts))


def shown(record: Any) -> dict[str, Any]:
    """The function: it fails for some records, and of others it gives what does not fit."""
    n = record[0] if type(record) is tuple else getattr(record, "n", None)
    if n == 3:
        raise ValueError("three")
    return {"text": repr(record), "n": "four" if n == 4 else n}


class Kept:
    def __init__(self) -> None:
        self.rows: list[tuple[Any, Any]] = []

    def process(self, chunk: Chunk, emit: Emit) -> None:
        assert isinstance(chunk, Records)
        self.rows += [(dict(row), dict(chunk.where(i))) for i, row in enumerate(chunk.rows)]


@dataclass
class Result:
    rows: list[tuple[Any, Any]]
    rejects: list[tuple[str, bytes, Any]]
    counts: dict[str, StepCounts]


def ran(rows: list[bytes], wanted: RecordType, want: Want, kind: str) -> Result:
    schema, given_ = ddl.parse("text string, n bigint"), ddl.parse(COLUMNS)
    maker, kept = record_maker(wanted, given_, "f"), Kept()
    rejects: list[Reject] = []
    operator: Any = MapRecords("f", shown, schema, maker, rejects=True)
    if kind == "flat_map":
        operator = FlatMap("f", lambda record: [shown(record)] * 2, {"": schema}, maker, rejects=True)
    steps = [Step("in", Pass(), []), Step("f", operator, [Edge("in")]), Step("end", kept, [Edge("f")])]
    chain = Chain(steps, rejects.append)
    chunk = decoder("json", COLUMNS).decode(lines_of(rows), rejects.append, want)
    chain.push(chunk, "in")
    return Result(kept.rows, [(each.reason, each.value, dict(each.where)) for each in rejects], dict(chain.tallies))


WANTED = [RecordType(cls) for cls in (tuple, Named, Data, Struct, One)]


@examples(60)
@given(st.lists(line(), min_size=1, max_size=12), st.sampled_from(WANTED), st.sampled_from(["map", "flat_map"]))
def test_it_is_what_comes_by_way_of_dicts(rows: list[bytes], wanted: RecordType, kind: str) -> None:
    assert ran(rows, wanted, "objects", kind) == ran(rows, wanted, "records", kind)


@examples(40)
@given(st.lists(line(), min_size=1, max_size=12), st.lists(line(), max_size=3))
def test_who_asks_for_dicts_gets_those_that_the_text_has(rows: list[bytes], more: list[bytes]) -> None:
    decode = decoder("json", COLUMNS).decode
    straight, general = (to_records(decode(lines_of(rows), lambda _: None, want)) for want in ("objects", "records"))
    assert [list(row.items()) for row in straight.rows] == [list(row.items()) for row in general.rows]


def good() -> Records:
    decoded = decoder("json", COLUMNS).decode(lines_of([b'{"r":"a","n":1}', b'{"n":2,"r":"b"}']), print, "objects")
    assert isinstance(decoded, Records)
    return decoded


def test_no_dict_is_made_of_good_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    maker, decoded = record_maker(RecordType(Named), ddl.parse(COLUMNS), "f"), good()
    assert isinstance(decoded.rows, ObjectRows)
    monkeypatch.setattr(ObjectRows, "_rows", lambda _: pytest.fail("a dict was made"))
    assert maker is not None
    assert list(maker.of_chunk(decoded)) == [Named("a", 1), Named("b", 2)]


def test_a_row_that_was_changed_as_a_dict_is_changed() -> None:
    maker, decoded = record_maker(RecordType(Named), ddl.parse(COLUMNS), "f"), good()
    decoded.rows[0]["n"] = 9
    assert maker is not None
    assert list(maker.of_chunk(decoded)) == [Named("a", 9), Named("b", 2)]


def test_a_named_tuple_gets_the_columns_that_it_names_from_every_form_of_rows() -> None:
    schema = pa.schema([("r", pa.string()), ("at", pa.int64())])
    maker = record_maker(RecordType(Named), schema, "f")
    assert maker is not None
    batch = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array([5])], schema=schema)
    for chunk in (Batch(batch), to_records(Batch(batch))):
        assert list(maker.of_chunk(chunk)) == [Named("a", at=5)]


def mapped(event: Named) -> Named:
    return event


def kept(event: Named) -> bool:
    return True


def test_explain_says_which_records_are_made_straight(tmp_path: Any) -> None:
    def explained(source: Any, *, filtered: bool = False) -> str:
        job = Job("typed", checkpoint_dir=str(tmp_path / "checkpoints"), on_error="fail")
        events = job.from_source(source, name="events")
        events.map(mapped, schema="r string", name="mapped").sink_to(FileSink(str(tmp_path / "out")), name="out")
        if filtered:
            events.filter(kept, name="kept").sink_to(FileSink(str(tmp_path / "more")), name="more")
        return next(line.strip() for line in explain(job).splitlines() if line.strip().startswith("mapped:"))

    straight = "mapped: Python map mapped, given a Named made straight from JSON <- events"
    general = "mapped: Python map mapped, given a Named <- events"
    files = FileSource(str(tmp_path / "in"), format="json", schema="r string")
    assert explained(files) == straight
    assert explained(files, filtered=True) == general, "a filter sends on what it is given"
    assert explained(FileSource(str(tmp_path / "in"), format="csv", schema="r string")) == general
    assert explained(FileSource(str(tmp_path / "in"), format="json", schema="r string, l array<int>")) == general
    topic: Mapping[str, Any] = {"bootstrap_servers": "b:9092", "topics": "t", "format": "json", "end": "latest"}
    assert explained(KafkaSource(**topic, schema="r string")) == straight
    assert explained(KafkaSource(**topic, schema="r string", metadata={"k": "key"})) == general


class Out(msgspec.Struct):
    n: Any
    word: Any = msgspec.field(name="t", default=None)


class Tagged(msgspec.Struct, tag=True):
    n: Any
    t: Any = None


class WithoutDefaults(msgspec.Struct, omit_defaults=True):
    n: Any
    t: Any = None


class AsArray(msgspec.Struct, array_like=True):
    n: Any
    t: Any = None


class MayBeUnset(msgspec.Struct):
    n: int | msgspec.UnsetType
    t: Any = None


WRITTEN = st.one_of(
    VALUES,
    st.sampled_from([b"bytes", np.int32(7), {1, 2}, 1j, Out(1, [Out(2)]), Named("a"), float("nan"), {"k": object()}]),
)


@examples(60)
@given(st.lists(WRITTEN, min_size=1, max_size=5), WRITTEN, st.sampled_from([(), ("n",), ("x",)]))
def test_structs_are_written_just_as_their_dicts(values: list[Any], word: Any, hidden: tuple[str, ...]) -> None:
    given_ = [Out(value, word) for value in values]
    straight = struct_rows(given_, ["t", "n"])
    assert straight is not None
    encoded = [JsonEncoder(None, hidden).encode(Records(rows)) for rows in (straight, as_dicts(given_, ["t", "n"]))]
    data, ends, bad = zip(*((bytes(each.data), each.ends.tolist(), dict(each.bad)) for each in encoded), strict=True)
    assert (data[0], ends[0], bad[0]) == (data[1], ends[1], bad[1])
    assert [list(row.items()) for row in straight] == [list(row.items()) for row in as_dicts(given_, ["t", "n"])]


class Sure(msgspec.Struct):
    n: int | None
    t: list[str]


def test_a_value_that_msgspec_leaves_out_is_not_written_as_a_struct() -> None:
    assert struct_rows([MayBeUnset(1), MayBeUnset(2)], ["n", "t"]) is not None
    for given_ in ([MayBeUnset(1), MayBeUnset(msgspec.UNSET)], [Out(1, msgspec.UNSET)]):
        assert struct_rows(given_, ["n", "t"]) is None
    assert struct_rows([Sure(1, [])], ["n", "t"]) is not None


@pytest.mark.parametrize("cls", [Tagged, WithoutDefaults, AsArray, Named, Data, dict])
def test_what_is_written_otherwise_than_a_dict_becomes_one(cls: Any) -> None:
    rows = [cls(n=1, t="x")] if cls is not Named else [Named("a")]
    assert struct_rows(rows, ["n", "t"]) is None


def test_structs_of_other_columns_or_classes_are_looked_at_one_by_one() -> None:
    assert struct_rows([Out(1)], ["n", "t", "more"]) is None
    assert struct_rows([Out(1)], ["n"]) is None
    assert struct_rows([Out(1), Tagged(1)], ["n", "t"]) is None
    assert struct_rows([], ["n"]) is None
