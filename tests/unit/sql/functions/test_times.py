"""Times that are read and written by Java's patterns, in zones, and the clock."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError, TerminalError
from poundlock.sql.functions.function import Evaluation
from poundlock.sql.functions.times import FUNCTIONS
from support.examples import examples
from support.sql_functions import Functions

NEW_YORK, LORD_HOWE = "America/New_York", "Australia/Lord_Howe"
TIMES = Functions(FUNCTIONS)

FEW = examples(15)
MOMENTS = st.datetimes(datetime(1600, 1, 1), datetime(2500, 1, 1))
COLUMNS = st.lists(st.none() | MOMENTS, min_size=1, max_size=5)
PAIRS = {
    "yyyy-MM-dd HH:mm:ss.SSSSSS": "%Y-%m-%d %H:%M:%S.%f", "yyyyMMdd": "%Y%m%d", "dd/MM/yyyy HH:mm": "%d/%m/%Y %H:%M",
    "EEE, d MMM yyyy": "%a, {d} %b %Y", "EEEE MMMM": "%A %B", "hh a": "%I %p", "DDD": "%j", "yy": "%y", "H:m": "{H}:{M}",
    "yyyy'T'HH": "%YT%H", "yyyy[-MM]": "%Y-%m",
}  # fmt: skip


def column(values: list[datetime | None], kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, kind or pa.timestamp("us"))


def texts(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string())


@given(COLUMNS)
@FEW
def test_times_are_written_as_python_writes_them(values: list[datetime | None]) -> None:
    for pattern, python in PAIRS.items():
        expected = [each and each.strftime(python.format(d=each.day, H=each.hour, M=each.minute)) for each in values]
        assert TIMES.call("DATE_FORMAT", column(values), pattern) == expected
        varying = pa.array([pattern] * len(values) + ["yyyy"], pa.string())
        longer = column([*values, datetime(2024, 1, 1)])
        assert TIMES.call("DATE_FORMAT", longer, varying)[:-1] == expected


@given(
    st.lists(MOMENTS, min_size=1, max_size=5), st.sampled_from(["yyyy-MM-dd HH:mm:ss.SSS", "MMM d, yyyy H:mm:ss.SSS"])
)
@FEW
def test_what_is_written_is_read_again(values: list[datetime], pattern: str) -> None:
    milliseconds = [each.replace(microsecond=each.microsecond // 1000 * 1000) for each in values]
    written = TIMES.call("DATE_FORMAT", column(milliseconds), pattern)
    assert TIMES.call("TO_TIMESTAMP", texts(*written), pattern) == milliseconds
    assert TIMES.call("TO_DATE", texts(*written), pattern) == [each.date() for each in milliseconds]
    assert TIMES.call("TO_TIMESTAMP_LTZ", texts(*written), pattern) == [
        each.replace(tzinfo=UTC) for each in milliseconds
    ]


@given(COLUMNS, st.sampled_from([NEW_YORK, LORD_HOWE, "Asia/Shanghai", "UTC"]))
@FEW
def test_instants_are_shown_in_the_zone_of_the_session(values: list[datetime | None], zone: str) -> None:
    values = [each and each.replace(year=1970 + each.year % 100, day=min(each.day, 28)) for each in values]
    instants = [each and each.replace(tzinfo=UTC) for each in values]
    functions = Functions(FUNCTIONS, zone=zone)
    local = [each and each.astimezone(ZoneInfo(zone)) for each in instants]
    shown = [each and each.strftime("%Y-%m-%d %H:%M:%S") for each in local]
    kind = pa.timestamp("us", "UTC")
    assert functions.call("DATE_FORMAT", column(instants, kind), "yyyy-MM-dd HH:mm:ss") == shown
    seconds = [each and int(each.timestamp() // 1) for each in instants]
    assert functions.call("FROM_UNIXTIME", pa.array(seconds, pa.int64())) == shown
    assert functions.call("FROM_UNIXTIME", pa.array(seconds, pa.int64()), "HH") == [
        each and each.strftime("%H") for each in local
    ]


# What Java 17 reads with DateTimeFormatter, and Flink where it reads on after that.
@pytest.mark.parametrize(
    ("text", "pattern", "moment"),
    [
        ("2024-06-31", "yyyy-MM-dd", datetime(2024, 6, 30)),
        ("2024-02-32", "yyyy-MM-dd", None),
        ("20240230", "yyyyMMdd", datetime(2024, 2, 29)),
        ("2024-02-03 24:00:00", "yyyy-MM-dd HH:mm:ss", datetime(2024, 2, 4)),
        ("24:00", "HH:mm", datetime(1970, 1, 1)),
        ("2024-060", "yyyy-DDD", datetime(2024, 2, 29)),
        ("12:30 AM", "h:mm a", datetime(1970, 1, 1, 0, 30)),
        ("7:30", "h:mm", datetime(1970, 1, 1, 0, 30)),
        ("29/02/2023", "dd/MM/yyyy", datetime(2023, 2, 28)),
        ("02-30", "MM-dd", None),
        ("1/2/24", "d/M/yy", datetime(2024, 2, 1)),
        ("2024-2-3", "yyyy-MM-dd", datetime(2024, 2, 3)),  # by SQL's form
        ("2024-02-30", "dd/MM/yyyy", datetime(2024, 3, 1)),  # by SQL's form: the 31st of a short month is another day
        (" 2024-02-03 4:5:6.5 ", "HH", datetime(2024, 2, 3, 4, 5, 6, 500_000)),
        ("2024-02-03T04:05", "HH", None),
        ("Thursday, February 29, 2024", "EEEE, MMMM d, yyyy", datetime(2024, 2, 29)),
        ("2024-02-03 04:05:06.123456789", "yyyy-MM-dd HH:mm:ss.SSSSSSSSS", datetime(2024, 2, 3, 4, 5, 6, 123_000)),
        ("2024", "yyyy[-MM]", datetime(2024, 1, 1)),
        ("2024-02é", "yyyy-MM'é'", datetime(2024, 2, 1)),
    ],
)
def test_texts_are_read_by_patterns(text: str, pattern: str, moment: datetime | None) -> None:
    assert TIMES.call("TO_TIMESTAMP", texts(text, None, "?"), pattern) == [moment, None, None]
    assert TIMES.call("TO_TIMESTAMP", texts(text, text), texts(pattern, None)) == [moment, None]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-02-29", datetime(2024, 2, 29)),
        ("2024-2-9 1:02:3", datetime(2024, 2, 9, 1, 2, 3)),
        ("2024-02-30 00:00:00", datetime(2024, 2, 29)),
        ("2024-02-29 23:59:59.9999", datetime(2024, 2, 29, 23, 59, 59, 999_000)),
        ("1969-12-31 23:59:59.5", datetime(1969, 12, 31, 23, 59, 59, 500_000)),
        ("2024-02-29 24:00:00", datetime(2024, 3, 1)),
        ("2024-02-29 23:59", None),
        ("2024-02-29T23:59:59", None),
        ("24-02-29", None),
        ("", None),
    ],
)
def test_texts_are_read_by_default(text: str, moment: datetime | None) -> None:
    assert TIMES.call("TO_TIMESTAMP", texts(text, None)) == [moment, None]
    instant = moment and moment.replace(tzinfo=UTC)
    assert TIMES.call("TO_TIMESTAMP_LTZ", texts(text, None)) == [instant, None]


@pytest.mark.parametrize(
    ("text", "day"),
    [("2024-02-29", date(2024, 2, 29)), ("2024-2-3 x", date(2024, 2, 3)), ("12", date(12, 1, 1)), ("2024-5", date(2024, 5, 1)),
     (" 7 ", date(7, 1, 1)), ("2023-02-29", None), ("2024-2-3x", None), ("2024-00-01", None), ("x", None)],
)  # fmt: skip
def test_dates_are_read(text: str, day: date | None) -> None:
    assert TIMES.call("TO_DATE", texts(text, None)) == [day, None]


# What Java 17 reads with SimpleDateFormat.
@pytest.mark.parametrize(
    ("text", "pattern", "day"),
    [("2024-02-30 x", "yyyy-MM-dd", date(2024, 3, 1)), ("2024-13-01", "yyyy-MM-dd", date(2025, 1, 1)),
     ("3 feb 2024", "d MMM yyyy", date(2024, 2, 3)), ("20240203", "yyyyMMdd", date(2024, 2, 3)), ("x", "yyyy", None)],
)  # fmt: skip
def test_dates_are_read_by_patterns(text: str, pattern: str, day: date | None) -> None:
    assert TIMES.call("TO_DATE", texts(text), pattern) == [day]


def test_wall_times_that_a_zone_skips_or_repeats() -> None:
    functions = Functions(FUNCTIONS, zone=NEW_YORK)
    skipped, repeated = texts("2024-03-10 02:30:00"), texts("2024-11-03 01:30:00")
    # SimpleDateFormat takes the standard time of two, java.time the first.
    assert functions.call("UNIX_TIMESTAMP", skipped) == [1710055800]
    assert functions.call("UNIX_TIMESTAMP", repeated) == [1730615400]
    pattern = "yyyy-MM-dd HH:mm:ss"
    later = functions.call("TO_TIMESTAMP_LTZ", pa.concat_arrays([skipped, repeated]), pattern, NEW_YORK)
    assert [int(each.timestamp()) for each in later] == [1710055800, 1730611800]


def test_unix_timestamps() -> None:
    functions = Functions(FUNCTIONS, zone="Asia/Shanghai", now_us=1_500_000_999_999)
    assert functions.call("UNIX_TIMESTAMP") == [1_500_000] * 3
    assert functions.call("UNIX_TIMESTAMP", texts("1970-01-01 08:00:01.9", None, "x")) == [1, None, -(2**63)]
    assert functions.call("UNIX_TIMESTAMP", texts("01.01.1970"), "dd.MM.yyyy") == [-8 * 3600]


def test_numbers_as_instants() -> None:
    instant = datetime(2018, 12, 19, 1, 50, 26, 432_000, UTC)
    assert TIMES.call("TO_TIMESTAMP_LTZ", pa.array([1545184226432, None]), 3) == [instant, None]
    assert TIMES.call("TO_TIMESTAMP_LTZ", pa.array([1545184226.4325])) == [instant.replace(year=1970, month=1, day=18, hour=21, minute=13, second=4, microsecond=226_000)]  # fmt: skip
    assert TIMES.call("TO_TIMESTAMP_LTZ", pa.array([1545184226.4325]), 0) == [instant]
    assert TIMES.call("TO_TIMESTAMP_LTZ", pa.array([Decimal("1545184226432.9")])) == [instant]
    assert TIMES.call("TO_TIMESTAMP_LTZ", pa.array([2**60, -(2**60), 253402300799]), 0)[:2] == [None, None]
    varying = TIMES.call("TO_TIMESTAMP_LTZ", pa.array([1, 1, 1]), pa.array([0, 3, None]))
    assert [each and each.timestamp() for each in varying] == [1.0, 0.001, None]
    with pytest.raises(DefinitionError, match="precision 6"):
        TIMES.type_of("TO_TIMESTAMP_LTZ", 1, 6)
    with pytest.raises(TerminalError, match="neither 0 nor 3"):
        TIMES.call("TO_TIMESTAMP_LTZ", pa.array([1]), pa.array([6]))


def test_a_text_in_another_zone() -> None:
    values = texts("1970-01-01 00:00:00", None, "x", "1970-01-01 00:00:00.5")
    assert TIMES.call("CONVERT_TZ", values, "UTC", NEW_YORK) == [
        "1969-12-31 19:00:00",
        None,
        None,
        "1969-12-31 19:00:00",
    ]
    with pytest.raises(TerminalError, match="no time zone Nowhere"):
        TIMES.call("CONVERT_TZ", values, "UTC", "Nowhere")


def test_a_text_in_another_form() -> None:
    values = texts("2024-02-29 23:59:59.999", None, "x", "2024-2-30 1:2:3")
    assert TIMES.call("DATE_FORMAT", values, "dd.MM.yy HH:mm") == ["29.02.24 23:59", None, None, "01.03.24 01:02"]
    assert TIMES.call("DATE_FORMAT", pa.array([date(2024, 2, 29), None]), "yyyyMMdd") == ["20240229", None]


def test_fractions_down_to_nanoseconds() -> None:
    nanos = pa.array([1_709_251_199_123_456_789, -1, None], pa.int64()).cast(pa.timestamp("ns"))
    assert TIMES.call("DATE_FORMAT", nanos, "ss.SSSSSSSSS", by_row=False) == ["59.123456789", "59.999999999", None]
    assert TIMES.call("DATE_FORMAT", nanos, "s.SSSSSSSSSS", by_row=False) == ["59.1234567890", "59.9999999990", None]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CURRENT_TIMESTAMP", datetime(2024, 2, 29, 23, 59, 59, 999_000, UTC)),
        ("NOW", datetime(2024, 2, 29, 23, 59, 59, 999_000, UTC)),
        ("LOCALTIMESTAMP", datetime(2024, 3, 1, 7, 59, 59, 999_000)),
        ("CURRENT_DATE", date(2024, 3, 1)),
        ("LOCALTIME", time(7, 59, 59)),
        ("CURRENT_TIME", time(7, 59, 59)),
    ],
)
def test_the_clock_is_that_of_the_checkpoint(name: str, value: object) -> None:
    functions = Functions(FUNCTIONS, zone="Asia/Shanghai", now_us=1_709_251_199_999_123)
    assert functions.call(name) == [value] * 3
    assert not functions.named[name].is_deterministic
    assert not functions.type_of(name).is_nullable


@pytest.mark.parametrize("pattern", ["YYYY-MM-dd", "yyyy-MM-dd z", "'open", "[yyyy", "b"])
def test_patterns_that_are_not_taken_are_refused(pattern: str) -> None:
    for name in ("DATE_FORMAT", "TO_TIMESTAMP", "TO_DATE", "UNIX_TIMESTAMP", "TO_TIMESTAMP_LTZ"):
        if pattern == "[yyyy" and name in ("TO_DATE", "UNIX_TIMESTAMP", "DATE_FORMAT"):
            continue  # SimpleDateFormat has no brackets
        with pytest.raises(DefinitionError, match="is no pattern of dates and times"):
            TIMES.type_of(name, "2024", pattern)


def test_whole_columns_of_one_second() -> None:
    """Many times in few slots of a zone, and times that are far apart."""
    functions = Functions(FUNCTIONS, zone=NEW_YORK)
    start = datetime(2024, 3, 10, 6, 30, tzinfo=UTC)
    values = [start + timedelta(minutes=each) for each in range(120)] + [
        start.replace(year=1900),
        start.replace(year=2400),
    ]
    function = functions.named["DATE_FORMAT"]
    evaluation = Evaluation(
        len(values), functions.zone, 0, functions.type_of("DATE_FORMAT", start.replace(tzinfo=None), "HH")
    )
    made = function.run([column(values, pa.timestamp("us", "UTC")), pa.array(["dd HH:mm"] * len(values))], evaluation)  # type: ignore[arg-type]
    assert made.to_pylist() == [each.astimezone(functions.zone).strftime("%d %H:%M") for each in values]
