"""Lines from a TCP socket: to try things out with, such as with `nc -lk 9999`.

A peer cannot be asked again, so what the driver receives is written into the checkpoint's folder before a checkpoint reads it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from poundlock.arguments import TEXT, WHOLE, check_kind, refuse_without_effect
from poundlock.connectors.base import ReaderContext, ReplayPromise, Split
from poundlock.connectors.files.source.reader import FileReader
from poundlock.errors import DefinitionError, TerminalError, TransientError
from poundlock.formats import ddl
from poundlock.formats.decode import decoder
from poundlock.storage import Storage

_CONNECT_S = 5.0
_BLOCK = 1 << 16
_MOST = 64 << 20  # bytes that wait in memory; the peer has to wait then
_LIMIT = 16 << 20  # bytes in one file, and in one checkpoint
_CLOSED = "closed"


@dataclass(frozen=True, init=False)
class SocketSource:
    r"""Read lines of text, JSON or CSV from a TCP socket that listens; the source ends when the peer closes.

    What was received is delivered exactly once, whatever happens. What was on its way when the driver died is lost: a socket
    cannot be asked again. For data that matters, use Kafka or files.

    Args:
        host: where the peer listens.
        port: its port.
        format: "text" gives one binary column `value`, a line without its "\n" or "\r\n"; "json" and "csv" give columns.
        schema: DDL of the columns, for "json" and "csv".
        timestamp_unit: what one is in times given as numbers: "s", "ms" or "us".

    Raises:
        DefinitionError: the settings contradict each other or cannot be parsed.
    """

    host: str
    port: int
    format: Literal["text", "json", "csv"]
    columns: str | None
    options: tuple[tuple[str, str], ...]

    def __init__(
        self,
        host: str,
        port: int,
        *,
        format: Literal["text", "json", "csv"] = "text",
        schema: str | None = None,
        timestamp_unit: str = "s",
    ) -> None:
        if format not in ("text", "json", "csv"):
            raise DefinitionError(f"format {format!r} is not known here", next='use "text", "json" or "csv"')
        if format == "text":
            refuse_without_effect("SocketSource", {"timestamp_unit": (timestamp_unit, "s")}, because="format is 'text'")
        check_kind("SocketSource", TEXT, {"host": host})
        check_kind("SocketSource", WHOLE, {"port": port})
        if not 0 < port < 65536:
            raise DefinitionError(f"{port} is no port", next="give a number from 1 to 65535")
        if (schema is None) != (format == "text"):
            wrong = "text lines have the one column value" if schema else f"{format} needs columns"
            raise DefinitionError(wrong, next='give format="json" and schema="…" together, or neither')
        options = {} if format == "text" else {"timestamp_unit": timestamp_unit}
        if schema is not None:
            decoder(format, schema, **options)
        values = {"host": host, "port": port, "format": format, "columns": schema, "options": tuple(options.items())}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def bounded(self) -> bool:
        """False: the job runs as one without end, although it ends when the peer closes."""
        return False

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading of a range gives: what was written down before the driver died."""
        return ReplayPromise(
            "received-once", "what is on its way when the driver dies is lost; what was received is delivered once"
        )

    def schema(self) -> pa.Schema:
        """Return the columns of the rows."""
        return pa.schema([("value", pa.binary())]) if self.columns is None else ddl.parse(self.columns)

    @property
    def known_columns(self) -> pa.Schema:
        """The columns of the rows."""
        return self.schema()

    def preflight(self) -> None:
        """Do nothing: a peer such as `nc -l` serves the first connection only, so that it must not be a trial."""

    def enumerator(self, workspace: Storage) -> SocketEnumerator:
        """Return the driver's half."""
        return SocketEnumerator(self.host, self.port, workspace, ddl.render(self.schema()))

    def reader(self, context: ReaderContext) -> FileReader:
        """Return the task's half: it reads the files that the driver wrote."""
        return FileReader(
            self.format, dict(self.options), compression="none", header=False, multiline=False, context=context
        )

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log."""
        return f"lines from {self.host}:{self.port}: {position['bytes']} bytes received"


class SocketEnumerator:
    """Driver's half: receives lines in a thread, and writes them into files, each of them read by one checkpoint."""

    def __init__(self, host: str, port: int, workspace: Storage, columns: str) -> None:
        self._host, self._port, self._storage, self._ddl = host, port, workspace, columns
        self._lock = threading.Condition()
        self._held = bytearray()
        self._socket: socket.socket | None = None
        self._ended: bool = False
        self._failure: OSError | None = None
        self._next = 0  # number of the next file
        self._asked = 0  # bytes that were sent to it, and nobody confirmed that they are there
        self._read_to: int | None = None

    def initial(self) -> dict[str, Any]:
        return {"file": 0, "bytes": 0}

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        number, size = int(start["file"]), int(start["bytes"])
        self._next = max(self._next, number)
        self._write_down()
        self._connect()
        first = number
        while (entry := self._storage.stat(_name(number))) is not None:
            if number > first and size + entry.bytes - int(start["bytes"]) > _LIMIT:
                break
            number, size = number + 1, size + entry.bytes
        return {"file": number, "bytes": size}

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Split]:
        splits = []
        for number in range(int(start["file"]), int(end["file"])):
            name = _name(number)
            entry = self._storage.stat(name)
            size = 0 if entry is None else entry.bytes  # a reader says that the file is gone
            part = {"root": self._storage.root, "path": name, "start": 0, "end": size, "bytes": size}
            splits.append(Split(f"{number:020d}", {"ddl": self._ddl, "parts": [part]}, size, size, name=name))
        return splits

    def finished(self, position: dict[str, Any]) -> bool:
        with self._lock:
            over = self._ended and not self._held and self._failure is None
        return over and self._storage.stat(_name(int(position["file"]))) is None

    def committed(self, position: dict[str, Any]) -> None:
        """Delete what is not needed any more: all but what the newest checkpoint read, which may be delivered again."""
        number, before = int(position["file"]), self._read_to
        if number != before:
            self._read_to = number
            while before and self._storage.delete(_name(before - 1)):
                before -= 1

    def close(self) -> None:
        """End the connection; what was received is written down."""
        with self._lock:
            open_one, self._socket = self._socket, None
            self._lock.notify_all()
        if open_one is not None:
            with suppress(OSError):
                open_one.shutdown(socket.SHUT_RDWR)
            open_one.close()
        self._write_down()

    # --- receiving ---------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        with self._lock:
            if len(self._held) > _MOST and b"\n" not in self._held:
                raise TerminalError(
                    f"{self._host}:{self._port} has sent {len(self._held) >> 20} MB without a line end",
                    next="send lines; one may have up to 64 MB",
                )
            if self._failure is not None:
                failure, self._failure, self._ended = self._failure, None, False
                raise TransientError(
                    f"the connection to {self._host}:{self._port} broke: {failure}",
                    next="what was received is kept; the job connects again",
                )
            if self._socket is not None or self._ended:
                return
        try:
            made = socket.create_connection((self._host, self._port), _CONNECT_S)
        except OSError as error:
            if self._storage.stat(_CLOSED) is not None:  # the peer had ended before the job was started again
                self._ended = True
                return
            raise TransientError(
                f"nothing listens at {self._host}:{self._port}: {error}", next=f"start it, such as: nc -lk {self._port}"
            ) from None
        made.settimeout(None)
        self._socket = made
        threading.Thread(target=self._receive, args=(made,), name=f"socket-{self._port}", daemon=True).start()

    def _receive(self, connection: socket.socket) -> None:
        failure: OSError | None = None
        while True:
            try:
                got = connection.recv(_BLOCK)
            except OSError as error:
                failure, got = error, b""
            with self._lock:
                if self._socket is not connection:
                    return  # closed by us
                if not got:
                    self._end(failure)
                    return
                self._held += got
                while len(self._held) > _MOST and self._socket is connection:
                    self._lock.wait()

    def _end(self, failure: OSError | None) -> None:
        if self._held and not self._held.endswith(b"\n"):
            self._held += b"\n"
        assert self._socket is not None
        self._socket.close()
        self._socket, self._ended, self._failure = None, True, failure

    def _write_down(self) -> None:
        """Write the whole lines there are into files, durably; then nothing but a disk can lose them."""
        with self._lock:
            whole = self._held.rfind(b"\n") + 1
            lines, ended = bytes(self._held[:whole]), self._ended and self._failure is None
        for at, end in _cut(lines, self._asked):
            self._write_file(lines[at:end])
            with self._lock:
                # At once: a disk that is full for the next part must not have this one twice.
                del self._held[: end - at]
                self._lock.notify_all()
        if ended and self._storage.stat(_CLOSED) is None:
            self._storage.create_exclusive(_CLOSED, b"")

    def _write_file(self, lines: bytes) -> None:
        """Write the next file. A storage that gave no answer may have taken the same lines the time before."""
        asked, self._asked = self._asked, len(lines)
        while not self._storage.create_exclusive(_name(self._next), lines):
            if asked and self._storage.read(_name(self._next)) == lines:
                break
            asked, self._next = 0, self._next + 1
        self._asked, self._next = 0, self._next + 1


def _name(number: int) -> str:
    return f"{number:020d}.lines"


def _cut(lines: bytes, first: int = 0) -> list[tuple[int, int]]:
    """Return the parts of some lines, none much larger than a checkpoint reads; the first of so many bytes, if that is given."""
    parts, at = [(0, first)] if first else [], first
    while at < len(lines):
        end = len(lines) if len(lines) - at <= _LIMIT else lines.find(b"\n", at + _LIMIT - 1) + 1
        parts.append((at, end))
        at = end
    return parts
