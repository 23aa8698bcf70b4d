"""The time of a partition, from the names of its folders: what Flink's default extractor makes of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from poundlock.connectors.files.partitions.times import PartitionTimePattern, keys_and_values, partition_ms
from poundlock.errors import TerminalError


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("bucket", "extractor", "time"),
    [
        ("dt=2026-01-05", PartitionTimePattern(), "2026-01-05"),
        ("dt=2026-1-5 3%3A04%3A05.25", PartitionTimePattern(), "2026-01-05T03:04:05.25"),
        ("dt=2026-01-05/hr=7", PartitionTimePattern("$dt $hr:00:00"), "2026-01-05T07:00"),
        ("y=2026/m=1/d=5", PartitionTimePattern("$y-$m-$d"), "2026-01-05"),
        ("dt=2026-12-31/hr=24", PartitionTimePattern("$dt $hr:00:00"), "2027-01-01"),
        ("dt=2026-13-01", PartitionTimePattern(), "2027-01-01"),
        ("dt=20260105/hr=07", PartitionTimePattern("$dt$hr", "yyyyMMddHH"), "2026-01-05T07:00"),
        ("2026-01-05--07", PartitionTimePattern(formatter="yyyy-MM-dd--HH"), "2026-01-05T07:00"),
    ],
)
def test_time_of_a_partition(bucket: str, extractor: PartitionTimePattern, time: str) -> None:
    assert partition_ms(extractor, "UTC", bucket) == ms(time)


def test_keys_and_values_are_those_of_the_folders() -> None:
    assert keys_and_values("dt=x%2F1/n=7") == (("dt", "n"), ("x/1", "7"))
    assert keys_and_values("2026-01-05") == ((), ("2026-01-05",))


def test_time_is_one_of_a_zone() -> None:
    assert partition_ms(PartitionTimePattern(), "Asia/Shanghai", "dt=2026-01-05") == ms("2026-01-04T16:00")
    assert partition_ms(PartitionTimePattern(), "GMT-08:00", "dt=2026-01-05") == ms("2026-01-05T08:00")
    # As Java has it: what is skipped when clocks go forward is as much later, what is twice is the first.
    pattern = PartitionTimePattern("$dt $hr:30:00")
    assert partition_ms(pattern, "Europe/Berlin", "dt=2026-03-29/hr=02") == ms("2026-03-29T01:30")
    assert partition_ms(pattern, "Europe/Berlin", "dt=2026-10-25/hr=02") == ms("2026-10-25T00:30")


def test_a_function_gives_the_time() -> None:
    def extractor(keys: object, values: object) -> datetime:
        assert (keys, values) == (("week",), ("2",))
        return datetime(2026, 1, 5, tzinfo=UTC)

    assert partition_ms(extractor, "Asia/Shanghai", "week=2") == ms("2026-01-05")


@pytest.mark.parametrize(
    ("extractor", "why"),
    [
        (PartitionTimePattern(), "'__DEFAULT_PARTITION__' is not such as 2026-01-05 10:00:00"),
        (PartitionTimePattern(formatter="yyyyMMdd"), "is not written as yyyyMMdd"),
        (lambda keys, values: "2026", "'2026' is no datetime"),
        (lambda keys, values: datetime.fromisoformat(values[0]), "Invalid isoformat"),
    ],
)
def test_a_partition_without_a_time_is_named(extractor: PartitionTimePattern, why: str) -> None:
    with pytest.raises(TerminalError, match="dt=__DEFAULT_PARTITION__") as error:
        partition_ms(extractor, "UTC", "dt=__DEFAULT_PARTITION__")
    assert why in error.value.what
