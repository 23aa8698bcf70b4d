"""Fields of times, rounding to units, sums and differences in units."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError
from poundlock.sql.functions.time_fields import EXTRACT_UNITS, FUNCTIONS, ROUND_UNITS, sum_type, unit_in
from poundlock.sql.types import SqlType
from support.examples import examples
from support.sql_functions import Functions

NEW_YORK = "America/New_York"
FIELDS = Functions(FUNCTIONS)

FEW = examples(15)
MOMENTS = st.datetimes(datetime(1600, 1, 1), datetime(2500, 1, 1))
DATE, LTZ = SqlType("DATE"), SqlType("TIMESTAMP_LTZ", (3,))
UNITS = {"MINUTE": 60, "HOUR": 3600, "DAY": 86_400, "WEEK": 7 * 86_400}


def column(values: list[datetime | None]) -> pa.Array:
    return pa.array(values, pa.timestamp("us"))


@given(st.lists(st.none() | MOMENTS, min_size=1, max_size=4))
@FEW
def test_fields_are_those_of_python(values: list[datetime | None]) -> None:
    expected = {
        "YEAR": lambda each: each.year, "QUARTER": lambda each: (each.month + 2) // 3, "MONTH": lambda each: each.month,
        "WEEK": lambda each: each.isocalendar().week, "ISOYEAR": lambda each: each.isocalendar().year,
        "DAY": lambda each: each.day, "DOY": lambda each: each.timetuple().tm_yday, "ISODOW": lambda each: each.isoweekday(),
        "DOW": lambda each: each.isoweekday() % 7 + 1, "HOUR": lambda each: each.hour, "MINUTE": lambda each: each.minute,
        "SECOND": lambda each: each.second, "MILLISECOND": lambda each: each.microsecond // 1000,
        "MICROSECOND": lambda each: each.microsecond, "NANOSECOND": lambda each: each.microsecond * 1000,
        "DECADE": lambda each: each.year // 10, "CENTURY": lambda each: (each.year + 99) // 100,
        "MILLENNIUM": lambda each: (each.year + 999) // 1000,
        "EPOCH": lambda each: (each - datetime(1970, 1, 1)) // timedelta(seconds=1),
    }  # fmt: skip
    assert set(expected) == EXTRACT_UNITS
    for unit, of in expected.items():
        assert FIELDS.call("EXTRACT", column(values), options=(unit,), by_row=False) == [
            each and of(each) for each in values
        ]
    short = {"DAYOFYEAR": "DOY", "DAYOFMONTH": "DAY", "DAYOFWEEK": "DOW", "HOUR": "HOUR", "YEAR": "YEAR"}
    for name, unit in short.items():
        assert FIELDS.call(name, column(values), by_row=False) == [each and expected[unit](each) for each in values]


def test_fields_of_dates_times_and_instants() -> None:
    assert FIELDS.call("MONTH", pa.array([date(2024, 2, 29), None])) == [2, None]
    assert FIELDS.call("HOUR", pa.array([date(2024, 2, 29)])) == [0]
    assert FIELDS.call("MINUTE", pa.array([time(7, 8, 9)], pa.time32("ms"))) == [8]
    instants = pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    in_york = Functions(FUNCTIONS, zone=NEW_YORK)
    assert (in_york.call("YEAR", instants), in_york.call("HOUR", instants)) == ([2023], [19])
    nanos = pa.array([-1], pa.int64()).cast(pa.timestamp("ns"))
    assert FIELDS.call("EXTRACT", nanos, options=("NANOSECOND",), by_row=False) == [999_999_999]


@given(st.lists(MOMENTS, min_size=1, max_size=4))
@FEW
def test_rounding_down_and_up(values: list[datetime]) -> None:
    for unit in ROUND_UNITS:
        down = FIELDS.call("FLOOR_TO", column(values), options=(unit,), by_row=False)
        up = FIELDS.call("CEIL_TO", column(values), options=(unit,), by_row=False)
        again = FIELDS.call("FLOOR_TO", column(up), options=(unit,), by_row=False)
        assert again == up  # it is a whole unit
        for value, below, above in zip(values, down, up, strict=True):
            assert below <= value <= above
            assert (below == value) == (value == above)
    months = FIELDS.call("FLOOR_TO", column(values), options=("MONTH",))
    assert months == [datetime(each.year, each.month, 1) for each in values]


@pytest.mark.parametrize(
    ("unit", "down", "up"),
    [
        ("YEAR", datetime(2024, 1, 1), datetime(2025, 1, 1)),
        ("QUARTER", datetime(2024, 4, 1), datetime(2024, 7, 1)),
        ("WEEK", datetime(2024, 5, 12), datetime(2024, 5, 19)),  # Sundays
        ("SECOND", datetime(2024, 5, 15, 12, 34, 56), datetime(2024, 5, 15, 12, 34, 57)),
        ("DECADE", datetime(2020, 1, 1), datetime(2030, 1, 1)),
        ("CENTURY", datetime(2001, 1, 1), datetime(2101, 1, 1)),
        ("MILLENNIUM", datetime(2001, 1, 1), datetime(3001, 1, 1)),
    ],
)
def test_units_begin_here(unit: str, down: datetime, up: datetime) -> None:
    values = column([datetime(2024, 5, 15, 12, 34, 56, 1), None])
    assert FIELDS.call("FLOOR_TO", values, options=(unit,)) == [down, None]
    assert FIELDS.call("CEIL_TO", values, options=(unit,)) == [up, None]


def test_rounding_keeps_the_type() -> None:
    assert FIELDS.call("CEIL_TO", pa.array([date(2024, 2, 2)]), options=("MONTH",)) == [date(2024, 3, 1)]
    assert FIELDS.call("FLOOR_TO", pa.array([time(7, 8, 9)], pa.time32("ms")), options=("HOUR",)) == [time(7)]
    nanos = pa.array([1_000_000_001, 1_000_000_000], pa.int64()).cast(pa.timestamp("ns"))
    up = FIELDS.named["CEIL_TO"]
    from poundlock.sql.functions.function import Evaluation

    evaluation = Evaluation(2, FIELDS.zone, 0, SqlType("TIMESTAMP", (9,)), ("SECOND",))
    assert up.run([nanos], evaluation).cast(pa.int64()).to_pylist() == [2_000_000_000, 1_000_000_000]


def test_days_of_a_zone_are_not_all_as_long() -> None:
    functions = Functions(FUNCTIONS, zone=NEW_YORK)
    values = [datetime(2024, 3, 10, 12, tzinfo=ZoneInfo(NEW_YORK))]
    instants = pa.array(values, pa.timestamp("us", "UTC"))
    (down,) = functions.call("FLOOR_TO", instants, options=("DAY",))
    (up,) = functions.call("CEIL_TO", instants, options=("DAY",))
    assert (up - down) == timedelta(hours=23)
    assert functions.call("TIMESTAMPADD", 1, instants, options=("MONTH",)) == [
        datetime(2024, 4, 10, 12, tzinfo=ZoneInfo(NEW_YORK))
    ]


@given(st.lists(st.tuples(MOMENTS, MOMENTS), min_size=1, max_size=4))
@FEW
def test_differences_are_cut_off_towards_zero(rows: list[tuple[datetime, datetime]]) -> None:
    first, second = (column(list(each)) for each in zip(*rows, strict=True))
    for unit, seconds in UNITS.items():
        whole = [int((b - a) / timedelta(seconds=seconds)) for a, b in rows]
        if max(map(abs, whole)) < 2**31:
            assert FIELDS.call("TIMESTAMPDIFF", first, second, options=(unit,), by_row=False) == whole
    months = FIELDS.call("TIMESTAMPDIFF", first, second, options=("MONTH",), by_row=False)
    back = FIELDS.call("TIMESTAMPADD", pa.array(months), first, options=("MONTH",), by_row=False)
    for (a, b), reached in zip(rows, back, strict=True):
        assert abs(reached - b) < timedelta(days=31)
        assert a <= reached <= b or b <= reached <= a
    assert FIELDS.call("DATEDIFF", second, first, by_row=False) == [(b.date() - a.date()).days for a, b in rows]


def test_sums() -> None:
    leap = column([datetime(2024, 1, 31, 12), None])
    assert FIELDS.call("TIMESTAMPADD", 1, leap, options=("MONTH",)) == [datetime(2024, 2, 29, 12), None]
    assert FIELDS.call("TIMESTAMPADD", -1, leap, options=("YEAR",)) == [datetime(2023, 1, 31, 12), None]
    assert FIELDS.call("TIMESTAMPADD", pa.array([1, None]), leap, options=("QUARTER",)) == [
        datetime(2024, 4, 30, 12),
        None,
    ]
    assert FIELDS.call("TIMESTAMPADD", 90, leap, options=("MINUTE",)) == [datetime(2024, 1, 31, 13, 30), None]
    days = pa.array([date(2024, 2, 28)])
    assert FIELDS.call("DATE_ADD", days, 2) == [date(2024, 3, 1)]
    assert FIELDS.call("DATE_SUB", days, 28) == [date(2024, 1, 31)]
    stamp = sum_type(DATE, "HOUR")
    assert str(stamp) == "TIMESTAMP(3)"
    assert FIELDS.call("TIMESTAMPADD", 1, days, options=("HOUR",), returns=stamp) == [datetime(2024, 2, 28, 1)]
    assert (sum_type(DATE, "DAY"), sum_type(LTZ, "SECOND")) == (DATE, LTZ)


def test_units_that_are_not_there_are_refused() -> None:
    assert unit_in("sql_tsi_day", ROUND_UNITS) == "DAY"
    with pytest.raises(DefinitionError, match="there is no unit FORTNIGHT"):
        unit_in("FORTNIGHT", EXTRACT_UNITS)
