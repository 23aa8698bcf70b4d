"""Names of time zones: one function reads them, for settings of SQL, its functions, and partitions of files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from poundlock.connectors.files.partitions.commit import PartitionCommit
from poundlock.errors import DefinitionError, TerminalError
from poundlock.sql.errors import OptionError
from poundlock.sql.functions.times import FUNCTIONS
from poundlock.sql.settings import checked
from poundlock.values import time_zone
from support.sql_functions import Functions

MOMENT = datetime(2026, 7, 1, tzinfo=UTC)
OFFSETS = {
    "GMT+8": 8 * 60,
    "GMT+08:00": 8 * 60,
    "GMT-08:00": -8 * 60,
    "GMT+5:30": 330,
    "GMT-03:30": -210,
    "GMT+00:00": 0,
    "GMT-23:59": -1439,
}
WRONG = ["Berlin", "GMT+99:00", "GMT+8:60", "GMT+24", "GMT8", "UTC+8", "+08:00", "", "Europe/"]


@pytest.mark.parametrize(("name", "minutes"), OFFSETS.items())
def test_offsets_are_to_the_east(name: str, minutes: int) -> None:
    assert MOMENT.astimezone(time_zone(name)).utcoffset() == timedelta(minutes=minutes)


def test_whole_hours_and_names_are_zones_of_the_database() -> None:
    assert time_zone("GMT+08:00") == ZoneInfo("Etc/GMT-8")
    assert time_zone("Europe/Berlin") == ZoneInfo("Europe/Berlin")
    assert time_zone("UTC") == ZoneInfo("UTC")


@pytest.mark.parametrize("name", WRONG)
def test_what_is_none_is_refused_wherever_it_stands(name: str) -> None:
    for of in (name, None, 8):
        with pytest.raises(DefinitionError, match="is no time zone"):
            time_zone(of)
    with pytest.raises(OptionError, match="is no time zone"):
        checked("table.local-time-zone", name)
    with pytest.raises(DefinitionError, match="is no time zone"):
        PartitionCommit(trigger="partition-time", policies=("success-file",), watermark_time_zone=name)
    with pytest.raises(TerminalError, match="there is no time zone"):
        Functions(FUNCTIONS).call("CONVERT_TZ", pa.array(["2026-01-05 00:00:00"]), "UTC", name)


def test_the_same_names_are_read_everywhere() -> None:
    assert checked("table.local-time-zone", "GMT+8") == ZoneInfo("Etc/GMT-8")
    assert checked("table.local-time-zone", "default") == ZoneInfo("UTC")
    converted = Functions(FUNCTIONS).call("CONVERT_TZ", pa.array(["2026-01-05 00:00:00"]), "UTC", "GMT+05:30")
    assert converted == ["2026-01-05 05:30:00"]
    with pytest.raises(OptionError, match="is no time zone of the zone database"):
        checked("table.local-time-zone", "GMT+05:30")
