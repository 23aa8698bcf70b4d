"""What SET can set: which settings have a meaning here, and what they may be.

A setting that is not known is refused by name, nearest ones named, where Flink would take it in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from poundlock.config import load_settings, restart_settings
from poundlock.errors import DefinitionError, did_you_mean
from poundlock.savepoint.restore import parse_mode
from poundlock.sql.errors import OptionError
from poundlock.values import duration, time_zone


@dataclass(frozen=True)
class OneOf:
    """Reads a setting that is one of some words."""

    words: tuple[str, ...]

    def __call__(self, key: str, text: str) -> Any:
        if text.lower() not in self.words:
            raise OptionError(
                f"{key} = {text!r} is not known", next=f"use one of {', '.join(self.words)}", kind="bad_option_value"
            )
        return text.lower()


def _one_of(*words: str) -> OneOf:
    return OneOf(words)


@dataclass(frozen=True)
class Flag(OneOf):
    """Reads a setting that is true or false."""

    words: tuple[str, ...] = ("true", "false")

    def __call__(self, key: str, text: str) -> Any:
        return super().__call__(key, text) == "true"


_flag = Flag()


@dataclass(frozen=True)
class Waited(OneOf):
    """Reads whether an INSERT is waited for, which it is."""

    words: tuple[str, ...] = ("true",)

    def __call__(self, key: str, text: str) -> Any:
        if not _flag(key, text):
            raise OptionError(
                f"{key} = {text!r}, and an INSERT is waited for: its job is one of the process that runs it, and ends with it",
                next="leave it out; a job that goes on without a terminal: nohup poundlock sql script.sql &",
                kind="bad_option_value",
            )
        return True


def _whole(key: str, text: str) -> int:
    if not text.isdigit():
        raise OptionError(f"{key} = {text!r} is no whole number", next=f"SET '{key}' = '4'", kind="bad_option_value")
    return int(text)


def _positive(key: str, text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise OptionError(
            f"{key} = {text!r} is no number of rows", next=f"SET '{key}' = '1000'", kind="bad_option_value"
        )
    return int(text)


def _text(key: str, text: str) -> str:
    return text


def _claim(key: str, text: str) -> str:
    return parse_mode(text)


def _span(key: str, text: str) -> str:
    duration(text)
    return text


def _restart(key: str, text: str) -> str:
    try:
        load_settings([f"{key}={text}"])
    except DefinitionError as error:
        raise OptionError(error.what, next=error.next, kind="bad_option_value") from error
    return text


def _zone(key: str, text: str) -> ZoneInfo:
    try:
        zone = time_zone("UTC" if text.lower() == "default" else text)
    except DefinitionError:
        zone = None
    if not isinstance(zone, ZoneInfo):
        raise OptionError(
            f"{key} = {text!r} is no time zone" + ("" if zone is None else " of the zone database"),
            next="give a name such as Europe/Berlin, whole hours such as GMT+08:00, or UTC",
            kind="bad_option_value",
        )
    return zone


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting.

    Args:
        read: makes its value of a text; raises DefinitionError.
        note: what it does here.
    """

    read: Callable[[str, str], Any]
    note: str


RECOVERY_PATH = "execution.state-recovery.path"
IGNORE_UNCLAIMED = "execution.state-recovery.ignore-unclaimed-state"
CLAIM_MODE = "execution.state-recovery.claim-mode"
SAVEPOINT_DIR = "execution.checkpointing.savepoint-dir"
DML_SYNC = "table.dml-sync"
OLDER_NAMES: Mapping[str, str] = {
    "execution.savepoint.path": RECOVERY_PATH,
    "execution.savepoint.ignore-unclaimed-state": IGNORE_UNCLAIMED,
    "execution.savepoint-restore-mode": CLAIM_MODE,
    "state.savepoints.dir": SAVEPOINT_DIR,
}
"""What Flink called settings before, and what it calls them now."""
RESTARTS = tuple(restart_settings())
SETTINGS: Mapping[str, Setting] = {
    **{key: Setting(_restart, "the job's restart strategy") for key in RESTARTS},
    "execution.runtime-mode": Setting(_one_of("streaming", "batch", "automatic"), "whether results are final"),
    "execution.checkpointing.interval": Setting(_span, "the job's checkpoint_interval"),
    "execution.checkpointing.mode": Setting(_one_of("exactly_once"), "each checkpoint is exactly once in any case"),
    "execution.checkpointing.timeout": Setting(_span, "the job's checkpoint_timeout"),
    "execution.checkpointing.min-pause": Setting(_span, "the job's checkpoint_min_pause"),
    "execution.checkpointing.dir": Setting(_text, "the folder in which each job has its checkpoint_dir"),
    "state.checkpoints.dir": Setting(_text, "the folder in which each job has its checkpoint_dir"),
    RECOVERY_PATH: Setting(_text, "the savepoint or checkpoint that the next INSERT begins with"),
    IGNORE_UNCLAIMED: Setting(_flag, "whether state of it may be left behind that the job has no operator for"),
    CLAIM_MODE: Setting(_claim, "whose it is: yours (NO_CLAIM), or the job's (CLAIM), which deletes it"),
    SAVEPOINT_DIR: Setting(_text, "the folder in which STOP JOB makes savepoints"),
    "parallelism.default": Setting(_whole, "the job's parallelism"),
    "pipeline.max-parallelism": Setting(_whole, "the job's max_parallelism"),
    "pipeline.name": Setting(_text, "the next job's name"),
    "sql-client.execution.max-table-result.rows": Setting(_positive, "how many rows of a result the shell keeps"),
    "sql-client.execution.result-mode": Setting(_one_of("table", "changelog", "tableau"), "how results are shown"),
    DML_SYNC: Setting(Waited(), "true: an INSERT is waited for, in a script and in the shell; false is refused"),
    "table.exec.mini-batch.allow-latency": Setting(_span, "a checkpoint is a batch in any case"),
    "table.exec.mini-batch.enabled": Setting(_flag, "a checkpoint is a batch in any case"),
    "table.exec.mini-batch.size": Setting(_whole, "a checkpoint is a batch in any case"),
    "table.exec.sink.not-null-enforcer": Setting(_one_of("error", "drop"), "what becomes of NULL in a NOT NULL column"),
    "table.exec.sink.type-length-enforcer": Setting(
        _one_of("ignore", "trim_pad", "error"), "what becomes of a text that is longer than its column"
    ),
    "table.exec.source.idle-timeout": Setting(_span, "a partition without rows for longer is not waited for"),
    "table.exec.state.ttl": Setting(_span, "how long state of a key is kept after its last change"),
    "table.local-time-zone": Setting(
        _zone,
        "the zone of TIMESTAMP_LTZ values as texts and fields: a name such as Europe/Berlin, or whole hours such as GMT+08:00",
    ),
}


def checked(key: str, text: str) -> Any:
    """Return the value of a setting.

    Raises:
        DefinitionError: there is no such setting, or it cannot be that.
    """
    setting = SETTINGS.get(key)
    if setting is None:
        raise DefinitionError(
            f"there is no setting {key!r}",
            next=did_you_mean(key, SETTINGS, "leave it out; docs/sql.md has a table of all settings"),
        )
    return setting.read(key, text)
