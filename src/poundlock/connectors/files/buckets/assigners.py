"""Bucket assigners as the user writes them: where a record goes below the sink's folder.

All of it is checked when it is written down; a zone is never taken from the machine, and what has no usable event time
is rejected with a reason, never put into a made-up day.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from poundlock.arguments import NAMES, check_choices, check_kind, function_name
from poundlock.calls import check_function
from poundlock.connectors.files.sink.names import bucket_fault
from poundlock.errors import DefinitionError, pip_install
from poundlock.values import duration

if TYPE_CHECKING:
    from poundlock.checkpoint.participant import WriterContext
    from poundlock.connectors.files.buckets.assignment import OpenAssigner


BUCKET_COLUMN = "__bucket"
_LAST_S = 253402214400.0  # 9999-12-31T00:00:00Z: every zone's local time after it is still a date


_FIELDS = {
    "yyyy": "{0.year:04d}", "MM": "{0.month:02d}", "dd": "{0.day:02d}",
    "HH": "{0.hour:02d}", "mm": "{0.minute:02d}", "ss": "{0.second:02d}",
}  # fmt: skip
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+|'")


@dataclass(frozen=True, slots=True)
class DatePattern:
    """A date pattern as Java writes it: letters for parts of a date, quotes for text.

    One that is accepted gives the same text as Java's; letters outside the supported set are refused, never guessed.
    """

    text: str  # such as "'dt='yyyyMMdd": yyyy, MM, dd, HH, mm, ss, text in quotes, other signs as they are
    template: str  # the same as a format string over one datetime
    resolution_s: int  # how long the text stays the same at least: 1, 60 or 3600 s

    @classmethod
    def parse(cls, text: str) -> DatePattern:
        """Return the pattern. Raises DefinitionError where a letter is not supported or a quote is not closed."""
        if not isinstance(text, str) or not text:
            raise DefinitionError(f"{text!r} is not a date pattern", next="write one such as \"'dt='yyyyMMdd\"")
        parts: list[str] = []
        seen: set[str] = set()
        for match in _TOKEN.finditer(text):
            token, quoted = match[0], match[1]
            if token == "'":
                raise DefinitionError(f"date pattern {text!r}: a quote is not closed", next="put text between quotes")
            if match[2] and token not in _FIELDS:
                raise DefinitionError(
                    f"date pattern {text!r}: {token!r} is not supported",
                    next="use yyyy, MM, dd, HH, mm, ss, and put other letters in quotes: 'dt='",
                )
            seen.add(token)
            literal = token if quoted is None else quoted.replace("''", "'") or "'"
            parts.append(_FIELDS[token] if match[2] else literal.replace("{", "{{").replace("}", "}}"))
        return cls(text, "".join(parts), 1 if "ss" in seen else 60 if "mm" in seen else 3600)

    def format(self, moment: datetime) -> str:
        """Return the text of a local time."""
        return self.template.format(moment)


@runtime_checkable
class BucketAssigner(Protocol):
    """Where records go. Frozen and picklable; `open` is called in each task."""

    def open(self, context: WriterContext, *, raw: bool) -> OpenAssigner:
        """Return what names the buckets of chunks. `raw`: rows are bytes (row="value"), not columns."""

    def describe(self) -> str:
        """Return it for people, one line."""


@dataclass(frozen=True)
class BasePathBucketAssigner:
    """Every record into the sink's folder itself."""

    def open(self, context: WriterContext, *, raw: bool) -> OpenAssigner:
        from poundlock.connectors.files.buckets.assignment import OneBucket

        return OneBucket("")

    def describe(self) -> str:
        return "base path"


@dataclass(frozen=True)
class EventTimeBucketAssigner:
    """By the time in the record, in a zone that is always named.

    Args:
        field: where the time is: in raw mode a path in the record's JSON (dots go into objects), else a column (dots go
            into structs); a tuple of names where a name has a dot.
        pattern: Java date pattern of the bucket, such as "'dt='yyyyMMdd" or "'dt='yyyyMMdd'/hour='HH".
        zone: IANA name of the zone the pattern is written in, such as "UTC" or "Asia/Shanghai".
        unit: "s" (epoch seconds, with fraction), "ms" (epoch milliseconds) or "iso" (ISO 8601; without an offset it
            is local time in `zone`). Arrow timestamp columns need none; those without a zone are local time in `zone`.
        source: "json" or "column" forces one; "auto" = JSON in raw mode.
        earliest, latest: bounds, `earliest <= time < latest`, ISO text or datetime; default 1970-01-02 in `zone` (times
            near 0 are a broken clock or a wrong unit) and 9999-12-31 UTC.
        max_ahead, max_behind: how far the time may be after or before the begin of the checkpoint, such as "1 d". A
            replay has a later begin: a record at the limit may then fall on the other side of it.

    Raises:
        DefinitionError: a pattern, zone, unit or bound cannot be understood, or the pattern gives a hidden folder.
    """

    field: str | tuple[str, ...]
    pattern: str = "'dt='yyyyMMdd"
    _: KW_ONLY
    zone: str = ""
    unit: Literal["s", "ms", "iso"] = "s"
    source: Literal["auto", "json", "column"] = "auto"
    earliest: str | datetime | None = None
    latest: str | datetime | None = None
    max_ahead: str | timedelta | None = None
    max_behind: str | timedelta | None = None

    def __post_init__(self) -> None:
        check_kind("EventTimeBucketAssigner", NAMES, {"field": self.field})
        if not self.path or not all(self.path):
            raise DefinitionError(f"{self.field!r} is not a field", next='give a name such as "timestamp" or "meta.ts"')
        pattern = DatePattern.parse(self.pattern)
        zone = _zone(self.zone)
        check_choices(self, {"unit": ("s", "ms", "iso"), "source": ("auto", "json", "column")})
        fault = bucket_fault(pattern.format(datetime(2018, 12, 19, tzinfo=zone)))
        if fault:
            raise DefinitionError(f"date pattern {self.pattern!r}: {fault}", next="begin with text such as 'dt='")
        if self.bounds_s(0)[0] >= self.bounds_s(1 << 50)[1] and self.max_behind is None:
            raise DefinitionError(
                f"earliest={self.earliest!r} is not before latest={self.latest!r}", next="swap them, or leave one out"
            )

    @property
    def path(self) -> tuple[str, ...]:
        """The names that lead to the time."""
        return tuple(self.field.split(".")) if isinstance(self.field, str) else tuple(self.field)

    @property
    def label(self) -> str:
        """The field, for people."""
        return ".".join(self.path)

    def bounds_s(self, started_ms: int) -> tuple[float, float]:
        """Return the first time that is accepted and the first that is not any more, s since the epoch."""
        zone = zoneinfo.ZoneInfo(self.zone)
        low = datetime(1970, 1, 2, tzinfo=zone).timestamp() if self.earliest is None else _moment(self.earliest, zone)
        high = _LAST_S if self.latest is None else _moment(self.latest, zone)
        if self.max_behind is not None:
            low = max(low, started_ms / 1000 - duration(self.max_behind).total_seconds())
        if self.max_ahead is not None:
            high = min(high, started_ms / 1000 + duration(self.max_ahead).total_seconds())
        return low, min(high, _LAST_S)

    def json(self, raw: bool) -> bool:
        """Return whether the time is looked for in the record's bytes."""
        return raw if self.source == "auto" else self.source == "json"

    def open(self, context: WriterContext, *, raw: bool) -> OpenAssigner:
        from poundlock.connectors.files.buckets.assignment import EventTimeAssignment

        if self.json(raw) and not raw:
            raise DefinitionError('source="json" needs raw rows', next='give the sink row="value", or source="column"')
        return EventTimeAssignment(self, context.started_ms, json=self.json(raw))

    def describe(self) -> str:
        return f"{self.pattern} of {self.label} in {self.zone}"


def _zone(name: Any) -> zoneinfo.ZoneInfo:
    if not isinstance(name, str) or not name:
        raise DefinitionError(
            "the zone of the buckets is not given",
            next='say it: zone="UTC" or zone="Asia/Shanghai"; no default is safe',
        )
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise DefinitionError(
            f"time zone {name!r} is not known here",
            next=f'use an IANA name such as "Europe/Berlin", or {pip_install("tzdata")}',
        ) from None


def _moment(value: str | datetime, zone: zoneinfo.ZoneInfo) -> float:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC).timestamp()
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise DefinitionError(f"{value!r} is not a date", next='write "2018-12-19" or "2018-12-19T08:00:00"') from None


@dataclass(frozen=True, kw_only=True)
class ProcessingTimeBucketAssigner:
    """By the driver's clock at the begin of the checkpoint: a replay may put records into a later bucket.

    Args:
        pattern: Java date pattern of the bucket.
        zone: IANA name of the zone the pattern is written in.

    Raises:
        DefinitionError: the pattern or the zone cannot be understood.
    """

    pattern: str = "yyyy-MM-dd--HH"
    zone: str = "UTC"

    def __post_init__(self) -> None:
        fault = bucket_fault(self.bucket_at(0))
        if fault:
            raise DefinitionError(f"date pattern {self.pattern!r}: {fault}", next="begin with text such as 'dt='")

    def bucket_at(self, time_ms: int) -> str:
        """Return the bucket of a time, ms since the epoch."""
        moment = datetime.fromtimestamp(time_ms // 1000, _zone(self.zone))
        return DatePattern.parse(self.pattern).format(moment)

    def open(self, context: WriterContext, *, raw: bool) -> OpenAssigner:
        from poundlock.connectors.files.buckets.assignment import OneBucket

        return OneBucket(self.bucket_at(context.started_ms))

    def describe(self) -> str:
        return f"{self.pattern} of the clock in {self.zone}"


@dataclass(frozen=True)
class ExpressionBucketAssigner:
    """By a Spark SQL expression that gives text. The plan adds it as the column `BUCKET_COLUMN`, which is not written.

    Args:
        expression: such as "concat('country=', country)".
    """

    expression: str

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str) or not self.expression.strip():
            raise DefinitionError(f"{self.expression!r} is not an expression", next="write Spark SQL that gives text")

    def open(self, context: WriterContext, *, raw: bool) -> OpenAssigner:
        from poundlock.connectors.files.buckets.assignment import ColumnBuckets

        return ColumnBuckets(BUCKET_COLUMN)

    def describe(self) -> str:
        return f"expression {self.expression}"


@dataclass(frozen=True)
class ColumnBucketAssigner:
    """By a column of the stream that has the bucket's name as text, and is not written itself: rows need not pass Spark for it.

    Args:
        column: its name.
    """

    column: str

    def __post_init__(self) -> None:
        check_kind("ColumnBucketAssigner", NAMES, {"column": self.column})

    def open(self, context: WriterContext, *, raw: bool) -> OpenAssigner:
        from poundlock.connectors.files.buckets.assignment import ColumnBuckets

        return ColumnBuckets(self.column)

    def describe(self) -> str:
        return f"column {self.column}"


@dataclass(frozen=True)
class PythonBucketAssigner:
    """By a Python function; it must be deterministic, since a replay calls it again.

    Args:
        function: takes a record, bytes in raw mode and a dict of columns otherwise, and returns the bucket as text. A
            record for which it raises or returns something else is rejected.
    """

    function: Callable[[Any], str]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise DefinitionError(f"{self.function!r} is not a function", next="give a function record -> bucket name")
        check_function(self.function, "the bucket", "record")

    def open(self, context: WriterContext, *, raw: bool) -> OpenAssigner:
        from poundlock.connectors.files.buckets.assignment import PythonBuckets

        return PythonBuckets(self.function, raw=raw)

    def describe(self) -> str:
        return f"function {function_name(self.function)}"
