"""The log of one run: JSON lines in a file of its own, the JVM's noise in another beside it, nothing on the terminal.

Every line passes the redaction, so that no password reaches the disk; only this package's loggers are touched.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import structlog

from poundlock.errors import DefinitionError
from poundlock.redaction import redact, redact_text
from poundlock.storage.storage_errors import is_full, storage_trouble

Level = Literal["debug", "info", "warning", "error"]
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_ROOT = "poundlock"


@dataclass(slots=True)
class JobLog:
    """An open log, for a `with` block; modules may as well use `logging.getLogger(__name__)` as its structlog logger."""

    path: Path
    logger: structlog.typing.FilteringBoundLogger
    _handlers: list[logging.Handler]
    _secrets: set[str]

    def hide(self, values: Iterable[str]) -> None:
        """Blank these values in every line from now on."""
        self._secrets.update(values)

    def close(self) -> None:
        """Write what is left and release the loggers."""
        root = logging.getLogger(_ROOT)
        for handler in self._handlers:
            root.removeHandler(handler)
            handler.close()
        if self._handlers:
            root.setLevel(logging.NOTSET)
            root.propagate = True
        self._handlers.clear()

    def __enter__(self) -> JobLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_log(
    job: str,
    folder: Path,
    *,
    level: Level = "info",
    secrets: Iterable[str] = (),
    now: datetime | None = None,
) -> JobLog:
    """Open the log of a run in `<folder>/<job>-<timestamp>.log`; where one is open in this process, go on with that.

    Args:
        secrets: values to blank wherever they appear.

    Raises:
        DefinitionError: the folder cannot be written.
        TransientError: its disk is full.
    """
    root = logging.getLogger(_ROOT)
    for handler in root.handlers:
        if isinstance(handler, _RunHandler):
            handler.hidden.update(secrets)
            return JobLog(Path(handler.baseFilename), _logger(job), [], handler.hidden)
    path = folder / stamped(job, ".log", now)
    hidden = set(secrets)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\n")  # a full disk still takes an empty file
        file = _RunHandler(path, hidden)
    except OSError as error:
        if is_full(error):
            raise storage_trouble(error, doing=f"opening the log in {folder}", starting=True) from error
        raise DefinitionError(
            f"the log folder {folder} cannot be written: {error.strerror or error}",
            next="choose another one: -D log_dir=DIR",
        ) from error
    file.setFormatter(_json_lines(hidden))
    root.setLevel(_LEVELS[level])
    root.propagate = False  # a root logger set up by a user's library would print to the terminal
    root.addHandler(file)
    return JobLog(path, _logger(job), [file], hidden)


def stamped(name: str, ending: str, now: datetime | None = None) -> str:
    """Return a file name such as `event-log-20181219T080000.123Z.log`; in the name, characters that some file system refuses become `_`."""
    time = (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
    return f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}-{time}Z{ending}"


class _RunHandler(logging.FileHandler):
    """The handler of a run's own file; there is at most one in a process."""

    def __init__(self, path: Path, hidden: set[str]) -> None:
        super().__init__(path, mode="w", encoding="utf-8")
        self.hidden = hidden

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop a line that cannot be written: a full disk is no reason to print stack traces or to fail the job."""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


def _logger(job: str) -> structlog.typing.FilteringBoundLogger:
    logger: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        logging.getLogger(f"{_ROOT}.run"),
        processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    ).bind(job=job)
    return logger


Processor = Any  # structlog's own type is a callable of three arguments


def _shared() -> list[Processor]:
    return [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]


def _redactor(hidden: set[str]) -> Processor:
    def clean(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        # The record itself rides along under names with a leading underscore, for the formatter only.
        inner = {name: value for name, value in event.items() if name.startswith("_")}
        shown = {name: value for name, value in event.items() if not name.startswith("_")}
        return {**redact(shown, hidden), **inner}

    return clean


def _json_lines(hidden: set[str]) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_shared(),
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _redactor(hidden),
            structlog.processors.EventRenamer("message"),
            _in_order,
            structlog.processors.JSONRenderer(default=_json_value),
        ],
    )


def _in_order(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    first = ("time", "level", "message")
    return {name: event[name] for name in (*first, *(n for n in event if n not in first)) if name in event}


def _json_value(value: object) -> str:
    # What is no JSON is shown by its text, which may hold what the redaction of plain data did not see.
    return redact_text(str(value))
