"""Event times to buckets: every zone against the standard library, instant by instant, and what is refused when written."""

from __future__ import annotations

import pickle
import zoneinfo
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.connectors.files.buckets.assigners import (
    BUCKET_COLUMN,
    BasePathBucketAssigner,
    ColumnBucketAssigner,
    DatePattern,
    EventTimeBucketAssigner,
    ExpressionBucketAssigner,
    ProcessingTimeBucketAssigner,
    PythonBucketAssigner,
)
from poundlock.connectors.files.buckets.assignment import Assignment, BucketRows
from poundlock.connectors.files.sink.names import bucket_fault
from poundlock.errors import DefinitionError
from poundlock.formats.chunk import Records
from support.examples import examples
from support.sinks import batch, lines

# Offsets of seconds (Monrovia to 1972), half and quarter hours, changes at a minute past midnight (St. John's), a skipped
# day (Apia 2011), midnight changes that repeat or skip the first hour of a day (Sao Paulo, Havana), no changes at all.
ZONES = [
    "UTC", "Asia/Shanghai", "Africa/Monrovia", "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia", "America/Sao_Paulo",
    "America/Havana", "Europe/Berlin", "Australia/Lord_Howe", "Antarctica/Troll", "Asia/Pyongyang", "America/New_York",
]  # fmt: skip
PATTERNS = {
    "'dt='yyyyMMdd": "dt=%Y%m%d",
    "yyyy-MM-dd--HH": "%Y-%m-%d--%H",
    "yyyyMMdd'T'HHmm": "%Y%m%dT%H%M",
    "yyyy/MM/dd/HH:mm:ss": "%Y/%m/%d/%H:%M:%S",
}


def assign(assigner: Any, rows: BucketRows, *, raw: bool = False, started_ms: int = 0) -> Assignment:
    return assigner.open(SimpleNamespace(started_ms=started_ms), raw=raw).assign(rows)  # type: ignore[no-any-return]


def names(assignment: Assignment, rows: int) -> list[str | None]:
    codes = assignment.codes
    each = [codes] * rows if isinstance(codes, int) else codes.tolist()
    return [None if code < 0 else assignment.names[code] for code in each]


def by_column(assigner: EventTimeBucketAssigner, values: Any) -> list[str | None]:
    return names(assign(assigner, BucketRows(None, batch(t=values))), len(values))


def expected(ms: int, zone: str, pattern: str) -> str:
    moment = datetime.fromtimestamp(ms // 1000, zoneinfo.ZoneInfo(zone))
    return moment.strftime(PATTERNS[pattern].replace("%Y", f"{moment.year:04d}"))


@cache
def transitions(zone: str) -> list[int]:
    """Return the seconds at which the offset of a zone changes, 1970 to 2037."""
    tz = zoneinfo.ZoneInfo(zone)

    def offset(second: int) -> timedelta | None:
        return datetime.fromtimestamp(second, tz).utcoffset()

    found = []
    step = 6 * 3600
    for start in range(86400, 2_140_000_000, step * 20):
        if offset(start) == offset(start + step * 20):
            continue
        low, high = start, start + step * 20
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset(middle) == offset(start) else (low, middle)
        found.append(high)
    return found


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_around_every_change_of_a_zones_offset(zone: str, pattern: str) -> None:
    assigner = EventTimeBucketAssigner("t", pattern, zone=zone, unit="ms", earliest="1969-12-31")
    for change in transitions(zone)[::3]:
        hours = [change + h * 3600 for h in (-25, -24, -1, 0, 1, 2, 24, 25)]
        ms = [s * 1000 + d for s in hours for d in (-60_001, -60_000, -1, 0, 1, 999, 59_999, 60_000, 899_999)]
        assert by_column(assigner, ms) == [expected(t, zone, pattern) for t in ms]


@examples(150)
@given(
    zone=st.sampled_from(ZONES),
    pattern=st.sampled_from(list(PATTERNS)),
    start=st.integers(2 * 86400 * 1000, 7_000_000_000_000),
    spread=st.sampled_from([1, 1000, 900_000, 86_400_000, 40 * 86_400_000, 30 * 365 * 86_400_000]),
    data=st.data(),
)
def test_any_instants_in_any_order(zone: str, pattern: str, start: int, spread: int, data: st.DataObject) -> None:
    ms = data.draw(st.lists(st.integers(start, start + spread), min_size=1, max_size=40))
    want = [expected(t, zone, pattern) for t in ms]
    assert by_column(EventTimeBucketAssigner("t", pattern, zone=zone, unit="ms"), ms) == want
    seconds = [t / 1000 for t in ms]
    assert by_column(EventTimeBucketAssigner("t", pattern, zone=zone), seconds) == want


@given(ms=st.integers(2 * 86400 * 1000, 253402214399999))
def test_milliseconds_are_exact_from_seconds_with_a_fraction(ms: int) -> None:
    from poundlock.connectors.files.sink.segments import _ROUNDING_MS

    text = b'{"t":%d.%03d}' % divmod(ms, 1000)
    assignment = assign(EventTimeBucketAssigner("t", zone="UTC"), BucketRows(lines(text), None), raw=True)
    assert assignment.times is not None
    assert np.floor(assignment.times * assignment.ms + _ROUNDING_MS) == [ms]
    assert names(assignment, 1) == [expected(ms, "UTC", "'dt='yyyyMMdd")]


NOON = datetime(2018, 12, 19, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("values", "options", "bucket"),
    [
        ([1545220800], {}, "dt=20181219"),
        ([1545220800.5], {}, "dt=20181219"),
        ([Decimal("1545220800.123")], {}, "dt=20181219"),
        ([1545220800123], {"unit": "ms"}, "dt=20181219"),
        (pa.array([NOON], pa.timestamp("us", "UTC")), {}, "dt=20181219"),
        (pa.array([NOON], pa.timestamp("ns", "Asia/Tokyo")), {"unit": "ms"}, "dt=20181219"),
        (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ms")), {"zone": "Pacific/Auckland"}, "dt=20181219"),
        (pa.array([NOON.date()]), {"zone": "Pacific/Auckland"}, "dt=20181219"),
        (["2018-12-19T23:30:00Z"], {"unit": "iso", "zone": "Asia/Shanghai"}, "dt=20181220"),
        (["2018-12-19 23:30:00.123456"], {"unit": "iso", "zone": "Asia/Shanghai"}, "dt=20181219"),
        (["2018-12-19T23:30+01:00"], {"unit": "iso"}, "dt=20181219"),
    ],
)
def test_column_types(values: Any, options: dict[str, Any], bucket: str) -> None:
    column = values if isinstance(values, pa.Array) else pa.array(values)
    assigner = EventTimeBucketAssigner("t", **{"zone": "UTC", **options})
    assert by_column(assigner, column) == [bucket]
    records = BucketRows(None, Records([{"t": value} for value in column.to_pylist()]))
    assert names(assign(assigner, records), 1) == [bucket]


def test_nested_fields() -> None:
    events = [{"ts": 1545220800.0}, {"ts": None}, None]
    assigner = EventTimeBucketAssigner("meta.ts", zone="UTC")
    found = assign(assigner, BucketRows(None, batch(meta=events)))
    assert names(found, 3) == ["dt=20181219", None, None]
    text = lines(
        b'{"meta":{"ts":1545220800,"x":[1]},"ts":5}', b'{"meta":5}', b'{"ts":1545220800}', b'{"meta":{"ts":null}}'
    )
    found = assign(assigner, BucketRows(text, None), raw=True)
    assert names(found, 4) == ["dt=20181219", None, None, None]
    assert dict(found.reasons) == {1: "no meta.ts", 2: "no meta.ts", 3: "meta.ts is null"}
    dotted = EventTimeBucketAssigner(("meta.ts",), zone="UTC")
    assert names(assign(dotted, BucketRows(lines(b'{"meta.ts":1545220800}'), None), raw=True), 1) == ["dt=20181219"]


def test_iso_text_in_json() -> None:
    rows = [
        (b'{"t":"2018-12-19T23:59:59.999+00:00"}', "dt=20181220", None),
        (b'{"t":"2018-12-19T23:59:59"}', "dt=20181219", None),
        (b'{"t":"2018-12-19"}', None, "t is not an ISO date and time"),
        (b'{"t":"20181219T120000Z"}', None, "t is not an ISO date and time"),
        (b'{"t":"2018-13-19T12:00:00Z"}', None, "t is not an ISO date and time"),
        (b'{"t":"0001-01-01T00:00:00"}', None, "t is out of range"),
        (b'{"t":1545220800}', None, "t is not ISO text"),
        (b'{"t":null}', None, "t is null"),
    ]
    assigner = EventTimeBucketAssigner("t", zone="Asia/Shanghai", unit="iso")
    for part in (rows, rows[:2]):
        found = assign(assigner, BucketRows(lines(*(row for row, _, _ in part)), None), raw=True)
        assert names(found, len(part)) == [bucket for _, bucket, _ in part]
        assert dict(found.reasons) == {i: reason for i, (_, _, reason) in enumerate(part) if reason}


def test_columns_without_a_usable_time() -> None:
    column = pa.array([1545220800.0, None, float("nan"), float("inf"), -1.0, 0.0])
    found = assign(EventTimeBucketAssigner("t", zone="UTC"), BucketRows(None, batch(t=column)))
    assert names(found, 6) == ["dt=20181219", None, None, None, None, None]
    assert list(found.reasons.values()) == ["t is null", "t is not a number", *["t is out of range"] * 3]
    for bad in (pa.array([1.5e9], pa.float32()), pa.array(["1545220800"]), pa.array([True]), pa.array([[1]])):
        with pytest.raises(DefinitionError, match="column t is"):
            assign(EventTimeBucketAssigner("t", zone="UTC"), BucketRows(None, batch(t=bad)))
    with pytest.raises(DefinitionError, match="no column 'x'"):
        assign(EventTimeBucketAssigner("x", zone="UTC"), BucketRows(None, batch(t=[1])))


def test_bounds() -> None:
    zone = "America/Los_Angeles"
    first = datetime(1970, 1, 2, tzinfo=zoneinfo.ZoneInfo(zone)).timestamp()
    column = [first - 0.001, first, 253402214399.0, 253402214400.0]
    assert by_column(EventTimeBucketAssigner("t", zone=zone), column) == [None, "dt=19700102", "dt=99991230", None]
    given_ = EventTimeBucketAssigner("t", zone="UTC", earliest="2018-12-19", latest=datetime(2018, 12, 20, tzinfo=UTC))
    assert by_column(given_, [1545177599.9, 1545177600.0, 1545263999.9, 1545264000.0]) == [
        None, "dt=20181219", "dt=20181219", None,
    ]  # fmt: skip
    near = EventTimeBucketAssigner("t", zone="UTC", unit="ms", max_ahead="1 h", max_behind="1 d")
    now = 1545220800000
    column_ms = [now - 86_400_001, now - 86_400_000, now + 3_599_999, now + 3_600_000]
    found = assign(near, BucketRows(None, batch(t=column_ms)), started_ms=now)
    assert names(found, 4) == [None, "dt=20181218", "dt=20181219", None]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "zone of the buckets is not given"),
        ({"zone": "Mars/Olympus"}, "not known here"),
        ({"zone": "UTC", "pattern": "YYYY-MM-dd"}, "'YYYY' is not supported"),
        ({"zone": "UTC", "pattern": "dt=yyyy"}, "'t' is not supported|'d' is not supported"),
        ({"zone": "UTC", "pattern": "'dt=yyyy"}, "a quote is not closed"),
        ({"zone": "UTC", "pattern": "'_'yyyy"}, "hidden"),
        ({"zone": "UTC", "pattern": "'../'yyyy"}, "hidden or leave"),
        ({"zone": "UTC", "unit": "us"}, "unit='us' is not known"),
        ({"zone": "UTC", "source": "row"}, "source='row' is not known"),
        ({"zone": "UTC", "field": ""}, "is not a field"),
        ({"zone": "UTC", "earliest": "yesterday"}, "is not a date"),
        ({"zone": "UTC", "earliest": "2020-01-01", "latest": "2019-01-01"}, "not before"),
        ({"zone": "UTC", "max_ahead": "soon"}, "not a duration"),
    ],
)
def test_refused_when_written(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        EventTimeBucketAssigner(**{"field": "t", **arguments})


def test_the_zone_is_by_keyword_only() -> None:
    with pytest.raises(TypeError):
        EventTimeBucketAssigner("t", "yyyy", "UTC")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("'dt='yyyyMMdd", "dt=20181219"),
        ("yyyy-MM-dd'T'HH:mm:ss", "2018-12-19T01:50:26"),
        ("'it''s' yyyy", "it's 2018"),
        ("''yyyy''", "'2018'"),
        ("'{'yyyy'}'", "{2018}"),
        ("yyyyMMdd/HH", "20181219/01"),
    ],
)
def test_patterns(pattern: str, text: str) -> None:
    assert DatePattern.parse(pattern).format(datetime(2018, 12, 19, 1, 50, 26, tzinfo=UTC)) == text


def test_other_assigners() -> None:
    rows = BucketRows(None, batch(**{BUCKET_COLUMN: ["a", None, "b", "a", ".x"], "n": [1, 2, 3, 4, 5]}))
    found = assign(ExpressionBucketAssigner("lower(c)"), rows)
    assert names(found, 5) == ["a", None, "b", "a", None]
    assert found.reasons[1] == "bucket is null"
    coded = pa.array(["b", "unused", "", None, "b", None]).dictionary_encode().slice(1)
    by_column = assign(ColumnBucketAssigner("c"), BucketRows(None, batch(c=coded, n=[1, 2, 3, 4, 5])))
    assert names(by_column, 5) == ["unused", "", None, "b", None]
    assert sorted(by_column.reasons) == [2, 4]
    assert assign(ColumnBucketAssigner("c"), BucketRows(None, batch(c=["a", "a"]))).codes == 0
    assert names(assign(PythonBucketAssigner(lambda r: f"n={r['n'] % 2}"), rows), 5) == [
        "n=1",
        "n=0",
        "n=1",
        "n=0",
        "n=1",
    ]
    assert names(assign(BasePathBucketAssigner(), rows), 5) == [""] * 5
    clock = ProcessingTimeBucketAssigner(zone="Asia/Shanghai")
    assert names(assign(clock, rows, started_ms=1545184226432), 5) == ["2018-12-19--09"] * 5
    with pytest.raises(DefinitionError, match="no column __bucket"):
        assign(ExpressionBucketAssigner("x"), BucketRows(lines(b"x"), None), raw=True)


@pytest.mark.parametrize("bad", ["", " ", 7])
def test_expression_is_text(bad: Any) -> None:
    with pytest.raises(DefinitionError, match="is not an expression"):
        ExpressionBucketAssigner(bad)


def test_assigners_travel() -> None:
    for assigner in (
        EventTimeBucketAssigner("a.b", zone="UTC", earliest="2018-01-01"),
        ProcessingTimeBucketAssigner(),
        ExpressionBucketAssigner("x"),
        ColumnBucketAssigner("x"),
        BasePathBucketAssigner(),
    ):
        assert pickle.loads(pickle.dumps(assigner)) == assigner


def test_a_bucket_that_no_key_of_a_store_has_room_for_is_refused() -> None:
    deep = "/".join(["n" * 99] * 7)
    assert bucket_fault(deep) is None
    assert "longer than 700 bytes" in (bucket_fault(f"{deep}/n") or "")
    assert "longer than 200 bytes" in (bucket_fault("n" * 201) or "")
