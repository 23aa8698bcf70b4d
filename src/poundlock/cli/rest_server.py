"""A REST server that a command serves in the terminal until Ctrl-C, with a token of its own in a file."""

from __future__ import annotations

import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poundlock.config import Settings
    from poundlock.rest.server import RestServer


@dataclass(frozen=True, kw_only=True)
class CommandServer:
    """A server that listens, and answers nobody yet.

    Args:
        token_file: of the server's own token; gone when the command ends.
        ended: is set by Ctrl-C.
    """

    server: RestServer
    token_file: Path
    ended: threading.Event


@contextmanager
def command_server(
    settings: Settings, name: str, *, port: int, job_id: str, job: str, note: Callable[[str], None]
) -> Iterator[CommandServer]:
    """Have a server as long as it is entered; address, TLS and further tokens are those of the settings rest.….

    Args:
        name: of the command, in the name of its token's file.
        job_id, job: what the log of operations says of it; see OperationsLog.
        note: is given lines that the log of operations could not take.

    Raises:
        DefinitionError: the extra rest is not installed, the port is taken, or the settings cannot be used.
    """
    from poundlock.control.operations_log import OperationsLog
    from poundlock.control.registry import write_whole
    from poundlock.rest.access.access import Access
    from poundlock.rest.server import RestServer, not_installed, take_port

    if (missing := not_installed()) is not None:
        raise missing
    token, file = secrets.token_urlsafe(32), (settings.state_dir / f"{name}-{os.getpid()}.token").absolute()
    listening = take_port(settings.rest_bind_address, port)
    try:
        access = Access.of(settings, listening.getsockname()[0])
    except BaseException:
        listening.close()
        raise
    ended = threading.Event()
    before = {each: signal.signal(each, lambda number, frame: ended.set()) for each in (signal.SIGINT, signal.SIGTERM)}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, token.encode())
    operations = OperationsLog(
        path=settings.operations_log, job_id=job_id, job=job, say=lambda line, **more: note(line)
    )
    server = RestServer(listening, token, access, operations)
    try:
        yield CommandServer(server=server, token_file=file, ended=ended)
    finally:
        server.close()
        file.unlink(missing_ok=True)
        for number, handler in before.items():
            signal.signal(number, handler)
