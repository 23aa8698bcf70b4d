"""The time that a partition is of, read out of the names of its folders, as Flink's default extractor reads it.

A partition is a bucket such as "dt=2026-01-05/hour=10": its keys are dt and hour. A bucket without = has no key, and itself as its one value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from urllib.parse import unquote

from poundlock.arguments import function_name
from poundlock.connectors.files.buckets.assigners import DatePattern
from poundlock.errors import TerminalError
from poundlock.values import time_zone

PartitionTimeExtractor = Callable[[Sequence[str], Sequence[str]], datetime]
"""Gives the time of a partition from its keys and values: the same one each time. Without a zone it is of the commit's time zone."""

_DEFAULT = re.compile(
    r"(-?[0-9]{1,10})-([0-9]{1,2})-([0-9]{1,2})(?: ([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{1,9}))?)?"
)
_FIELD = re.compile(r"\{0\.([a-z]+):0([0-9])d\}")


def keys_and_values(bucket: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys and the values of a partition, in their order, without the % that stands for signs."""
    folders = [folder.partition("=") for folder in bucket.split("/") if "=" in folder]
    if not folders:
        return (), (bucket,)
    return tuple(unquote(key) for key, _, _ in folders), tuple(unquote(value) for _, _, value in folders)


@dataclass(frozen=True)
class PartitionTimePattern:
    """The time of a partition by patterns, as Flink's extractor `default` takes it.

    Args:
        pattern: a text in which `$key` stands for the value of that key, such as "$dt $hour:00:00"; None = the first value.
        formatter: Java date pattern of that text, such as "yyyyMMdd"; None = "yyyy-MM-dd HH:mm:ss" or "yyyy-MM-dd", in which month, day and
            so on may have one digit.

    Raises:
        DefinitionError: the formatter is no date pattern.
    """

    pattern: str | None = None
    formatter: str | None = None

    def __post_init__(self) -> None:
        if self.formatter is not None:
            DatePattern.parse(self.formatter)

    def __call__(self, keys: Sequence[str], values: Sequence[str]) -> datetime:
        """Return the time. Raises ValueError where the text has no such form."""
        return self.parsed(self.text(keys, values))

    def text(self, keys: Sequence[str], values: Sequence[str]) -> str:
        """Return the text that the time is read from."""
        if self.pattern is None:
            return values[0]
        text = self.pattern
        for key, value in zip(keys, values, strict=False):
            text = text.replace(f"${key}", value)
        return text

    def parsed(self, text: str) -> datetime:
        """Return the time that a text says. Raises ValueError where it says none."""
        return _by_default(text) if self.formatter is None else _by_pattern(text, self.formatter)


def _by_default(text: str) -> datetime:
    match = _DEFAULT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not such as 2026-01-05 10:00:00")
    year, month, day, hour, minute, second = (int(each or 0) for each in match.groups()[:6])
    micros = int((match[7] or "0").ljust(6, "0")[:6])
    more, month = divmod(month - 1, 12)  # the 13th month is the first of the next year, as Java's lenient parser has it
    return datetime(year + more, month + 1, 1) + timedelta(
        days=day - 1, hours=hour, minutes=minute, seconds=second, microseconds=micros
    )


@lru_cache(maxsize=64)
def _regex_of(formatter: str) -> re.Pattern[str]:
    pieces = _FIELD.split(DatePattern.parse(formatter).template)
    written = []
    for at in range(0, len(pieces), 3):
        written.append(re.escape(pieces[at].replace("{{", "{").replace("}}", "}")))
        if at + 1 < len(pieces):
            written.append(rf"(?P<{pieces[at + 1]}>[0-9]{{{pieces[at + 2]}}})")
    return re.compile("".join(written))


def _by_pattern(text: str, formatter: str) -> datetime:
    match = _regex_of(formatter).fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not written as {formatter}")
    given = {name: int(value) for name, value in match.groupdict().items()}
    return datetime(given.get("year", 1970), given.get("month", 1), given.get("day", 1)).replace(
        hour=given.get("hour", 0), minute=given.get("minute", 0), second=given.get("second", 0)
    )


@lru_cache(maxsize=1 << 16)
def partition_ms(extractor: PartitionTimeExtractor, zone: str, bucket: str) -> int:
    """Return the time of a partition, ms since the epoch.

    Raises:
        TerminalError: the extractor fails, or gives something else.
    """
    keys, values = keys_and_values(bucket)
    try:
        time = extractor(keys, values)
    except Exception as error:  # of a user's function
        raise _no_time(bucket, extractor, str(error) or type(error).__name__) from error
    if not isinstance(time, datetime):
        raise _no_time(bucket, extractor, f"{time!r} is no datetime")
    known = time if time.tzinfo is not None else time.replace(tzinfo=time_zone(zone))
    return (known - _EPOCH) // timedelta(milliseconds=1)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _no_time(bucket: str, extractor: PartitionTimeExtractor, why: str) -> TerminalError:
    by = f" by {function_name(extractor)}" if not isinstance(extractor, PartitionTimePattern) else ""
    return TerminalError(
        f"the partition {bucket!r} has no time{by}, by which it would be committed: {why}",
        next="give the commit a time pattern and formatter that fit all partitions, or commit by process-time",
    )
