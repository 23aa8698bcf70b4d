"""Wall clocks as an axis of time: which wall times are over at an instant, and when one is."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.operators.keyed.group import MAX, MIN
from poundlock.operators.local_times import LocalTimes, moves_clocks

_EPOCH = datetime(1970, 1, 1)
HOUR = 3_600_000
PUT_BACK, PUT_FORWARD = 1_636_275_600_000, 1_615_716_000_000
"""When the clocks of Los Angeles were moved in 2021: on November 7 from 2:00 to 1:00, on March 14 from 2:00 to 3:00."""
ZONES = ["America/Los_Angeles", "Europe/Berlin", "Australia/Lord_Howe", "Antarctica/Troll", "Africa/Casablanca"]
zones = st.sampled_from(ZONES).map(ZoneInfo)


def wall(text: str) -> int:
    """Return a wall time, ms."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)


@st.composite
def near_a_change(draw: st.DrawFn) -> tuple[ZoneInfo, int]:
    """Return an instant within hours of one at which the clocks of a zone are moved."""
    zone = draw(zones)
    changes, _ = LocalTimes(zone)._table
    at = int(draw(st.sampled_from(changes[-400:].tolist())))
    return zone, at + draw(st.integers(-4 * HOUR, 4 * HOUR) | st.integers(-2, 2))


def test_flinks_examples_of_clocks_that_are_moved() -> None:
    times = LocalTimes(ZoneInfo("America/Los_Angeles"))
    # Skipped times are over when the clocks are put forward.
    for text in ("2021-03-14 02:00", "2021-03-14 02:59:59.999", "2021-03-14 03:00"):
        assert times.end(wall(text)) == PUT_FORWARD, text
    assert times.end(wall("2021-03-14 01:59:59.999")) == PUT_FORWARD - 1
    # Those that come twice are over the second time.
    assert times.end(wall("2021-11-07 00:59:59.999")) == PUT_BACK - HOUR - 1
    assert times.end(wall("2021-11-07 01:00")) == PUT_BACK
    assert times.end(wall("2021-11-07 02:00")) == PUT_BACK + HOUR
    assert times.over_at(PUT_BACK - 1) == wall("2021-11-07 00:59:59.999")
    assert times.at(PUT_BACK - 1) == wall("2021-11-07 01:59:59.999")
    assert [times.at(each) for each in (MIN, MAX)] == [MIN, MAX]
    assert [times.end(each) for each in (MIN, MAX)] == [MIN, MAX]


@given(place=near_a_change())
def test_wall_times_are_those_of_the_zone(place: tuple[ZoneInfo, int]) -> None:
    zone, at = place
    there = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)).astimezone(zone).replace(tzinfo=None)
    assert LocalTimes(zone).at(at) == (there - _EPOCH) // timedelta(milliseconds=1)


@given(place=near_a_change())
def test_a_wall_time_is_over_once_no_later_instant_has_it(place: tuple[ZoneInfo, int]) -> None:
    zone, at = place
    times = LocalTimes(zone)
    over = times.over_at(at)
    changes, _ = times._table
    coming = changes[(changes > at) & (changes < at + 50 * HOUR)]
    later = times.of(np.concatenate([np.arange(at + 1, at + 50 * HOUR, 60_000), coming, [at + 1]]))
    assert int(later.min()) > over
    assert over in (times.at(at), int(later.min()) - 1), "and it is the last of those"


@given(place=near_a_change(), later=st.integers(0, 3 * HOUR))
def test_the_end_of_a_wall_time_is_the_first_instant_at_which_it_is_over(
    place: tuple[ZoneInfo, int], later: int
) -> None:
    zone, at = place
    times = LocalTimes(zone)
    assert times.over_at(at) <= times.over_at(at + later), "time does not go back"
    end = times.end(times.at(at))
    assert times.over_at(end) >= times.at(at) > times.over_at(end - 1)
    assert end >= at


@pytest.mark.parametrize(
    ("name", "moved"), [("UTC", False), ("Asia/Tokyo", False), ("Asia/Shanghai", True), ("Etc/GMT-8", False)]
)
def test_zones_whose_clocks_have_never_been_moved(name: str, moved: bool) -> None:
    assert moves_clocks(ZoneInfo(name)) is moved


def test_it_travels() -> None:
    times = LocalTimes(ZoneInfo("Europe/Berlin"))
    assert times.at(0) == HOUR
    assert pickle.loads(pickle.dumps(times)).over_at(0) == times.over_at(0)
