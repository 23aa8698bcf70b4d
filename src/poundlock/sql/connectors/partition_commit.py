"""The options of a table of files that say when a partition is complete, and what makes that known: Flink's partition commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from poundlock.connectors.files.partitions.commit import SUCCESS_FILE, SUCCESS_FILE_NAME, CommitPolicy, PartitionCommit
from poundlock.connectors.files.partitions.times import PartitionTimeExtractor, PartitionTimePattern
from poundlock.errors import DefinitionError
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError
from poundlock.sql.functions.kernels.java_times import parse_one, pattern_of
from poundlock.sql.user.loading import function_at
from poundlock.values import time_zone

KIND = "sink.partition-commit.policy.kind"
_EXTRACTOR = "partition.time-extractor."
_COMMIT = "sink.partition-commit."


@dataclass(frozen=True)
class JavaPartitionTimePattern(PartitionTimePattern):
    """The time of a partition by Flink's patterns, with all letters that DateTimeFormatter knows here."""

    def __post_init__(self) -> None:
        if self.formatter is not None:
            pattern_of(self.formatter, "DateTimeFormatter")

    def parsed(self, text: str) -> datetime:
        """Return the time that a text says. Raises ValueError where it says none."""
        if self.formatter is None:
            return super().parsed(text)
        local = parse_one(text, pattern_of(self.formatter, "DateTimeFormatter"))
        if local is None:
            raise ValueError(f"{text!r} is not written as {self.formatter}")
        return datetime(1970, 1, 1) + timedelta(microseconds=local)


@dataclass(frozen=True, slots=True)
class _Given:
    """The options as they are written; all of them are read, so that none is unknown."""

    kinds: str | None
    trigger: str | None
    delay: str | None
    zone: str
    file_name: str
    policy: str | None
    extractor_kind: str
    extractor: str | None
    pattern: str | None
    formatter: str | None
    names: tuple[str, ...]  # of those that the table has

    @classmethod
    def of(cls, options: TableOptions) -> _Given:
        return cls(
            kinds=options.text(KIND),
            trigger=options.one_of(f"{_COMMIT}trigger", ("process-time", "partition-time"), "process-time"),
            delay=options.span(f"{_COMMIT}delay"),
            zone=options.read(f"{_COMMIT}watermark-time-zone", _zone, "UTC", "Europe/Berlin"),
            file_name=options.read(f"{_COMMIT}success-file.name", _file_name, "_SUCCESS", "_SUCCESS"),
            policy=options.text(f"{_COMMIT}policy.class"),
            extractor_kind=options.one_of(f"{_EXTRACTOR}kind", ("default", "custom"), "default"),
            extractor=options.text(f"{_EXTRACTOR}class"),
            pattern=options.text(f"{_EXTRACTOR}timestamp-pattern"),
            formatter=options.text(f"{_EXTRACTOR}timestamp-formatter"),
            names=tuple(sorted(name for name in options.given if name.startswith((_COMMIT, _EXTRACTOR)))),
        )


def read_partition_options(options: TableOptions) -> None:
    """Read the options, which a table that is read may have as well. Raises OptionError where the value of one cannot be."""
    _Given.of(options)


def partition_commit_of(options: TableOptions, partitions: Sequence[str], *, is_batch: bool) -> PartitionCommit | None:
    """Return when partitions of a table are committed, and how; None where nothing is asked for.

    Args:
        partitions: the columns of its partitions.
        is_batch: whether results are final, so that partitions are committed at the end.

    Raises:
        OptionError: an option cannot be, or has no effect.
    """
    given = _Given.of(options)
    if not given.names:
        return None
    table = options.table
    if not partitions:
        raise OptionError(
            f"{table} has no partitions, and {given.names[0]!r} is about them",
            next="write PARTITIONED BY (column, …) before WITH, or leave the option out",
            kind="bad_option_value",
        )
    if given.kinds is None:
        raise OptionError(
            f"{table}: {given.names[0]!r} commits nothing without {KIND!r}",
            next=f"add '{KIND}' = '{SUCCESS_FILE}'",
            kind="missing_option",
        )
    policies = _policies(table, given)
    time = _extractor(table, given, partitions)
    return PartitionCommit(
        trigger="end" if is_batch else given.trigger,  # type: ignore[arg-type]  # one of its words
        delay=given.delay or "0 s",
        time=time,
        watermark_time_zone=given.zone,
        policies=policies,
        success_file_name=given.file_name,
    )


def _policies(table: str, given: _Given) -> list[str | CommitPolicy]:
    policies: list[str | CommitPolicy] = []
    for kind in (each.strip().lower() for each in (given.kinds or "").split(",")):
        if kind == SUCCESS_FILE:
            policies.append(SUCCESS_FILE)
        elif kind == "custom":
            policies.append(_function(table, f"{_COMMIT}policy.class", given.policy))
        elif kind == "metastore":
            raise OptionError(
                f"{table}: {KIND!r} names metastore, and tables of files have none: their partitions are their folders",
                next=f"write '{SUCCESS_FILE}', or 'custom' with '{_COMMIT}policy.class' = 'module.function' that adds the partition to yours",
                kind="bad_option_value",
            )
        else:
            raise OptionError(
                f"{table}: there is no policy {kind!r} of {KIND!r}",
                next=f"write '{SUCCESS_FILE}', 'custom' or '{SUCCESS_FILE},custom'",
                kind="bad_option_value",
            )
    if given.policy is not None and not any(callable(each) for each in policies):
        raise OptionError(
            f"{table}: '{_COMMIT}policy.class' has no effect without the policy custom",
            next=f"write '{KIND}' = 'custom', or '{SUCCESS_FILE},custom'",
            kind="bad_option_value",
        )
    return policies


def _extractor(table: str, given: _Given, partitions: Sequence[str]) -> PartitionTimeExtractor:
    if given.extractor_kind == "custom":
        unused = [name for name in ("timestamp-pattern", "timestamp-formatter") if f"{_EXTRACTOR}{name}" in given.names]
        if unused:
            raise OptionError(
                f"{table}: '{_EXTRACTOR}{unused[0]}' has no effect beside '{_EXTRACTOR}kind' = 'custom'",
                next="leave it out, or write 'default'",
                kind="bad_option_value",
            )
        function: PartitionTimeExtractor = _function(table, f"{_EXTRACTOR}class", given.extractor)
        return function
    if given.extractor is not None:
        raise OptionError(
            f"{table}: '{_EXTRACTOR}class' has no effect without '{_EXTRACTOR}kind' = 'custom'",
            next=f"add '{_EXTRACTOR}kind' = 'custom'",
            kind="bad_option_value",
        )
    try:
        time = JavaPartitionTimePattern(given.pattern, given.formatter)
    except DefinitionError as error:
        raise OptionError(
            f"{table}: '{_EXTRACTOR}timestamp-formatter': {error.what}", next=error.next, kind="bad_option_value"
        ) from None
    left = time.text(tuple(partitions), ("",) * len(partitions))
    if "$" in left:
        raise OptionError(
            f"{table}: '{_EXTRACTOR}timestamp-pattern' = {given.pattern!r} names a column that is none of its partitions",
            next=f"use {', '.join(f'${each}' for each in partitions)}",
            kind="unknown_column",
        )
    return time


def _function(table: str, option: str, path: str | None) -> Callable[..., Any]:
    """Return the Python function that an option names."""
    if path is None:
        raise OptionError(
            f"{table}: custom needs a Python function, and {option!r} names none",
            next=f"add '{option}' = 'module.function'",
            kind="missing_option",
        )
    try:
        return function_at(path)
    except DefinitionError as error:
        raise OptionError(f"{table}: {option!r}: {error.what}", next=error.next, kind="bad_option_value") from None


def _zone(text: str) -> str:
    time_zone(text)
    return text


def _file_name(text: str) -> str:
    if not SUCCESS_FILE_NAME.fullmatch(text):
        raise ValueError(text)
    return text
