"""How a Redis server is reached, and what its errors mean here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from poundlock.connectors.secrets import secret
from poundlock.errors import CommitUnknown, DefinitionError, PoundlockError, TerminalError, TransientError, pip_install
from poundlock.redaction import redact_text

_SECONDS = 5.0
_ANSWER_S = 60.0  # a script that writes a piece keeps the server busy for a fraction of a second
_PASSING = ("OOM", "LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "MISCONF", "NOREPLICAS")


def load_redis() -> Any:
    """Return the client's package. Raises DefinitionError where it is not installed."""
    try:
        import redis
    except ImportError:
        raise DefinitionError("the client of Redis is not installed", next=pip_install("poundlock[redis]")) from None
    return redis


@dataclass(frozen=True)
class RedisLogin:
    """Which server, as whom.

    Args:
        url: "redis://host:6379/0" or "rediss://…", without a password.
        password: the password, "env:NAME" or "file:PATH"; None = none.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def check(self) -> None:
        """Raise DefinitionError unless the URL is one of Redis that may be shown."""
        parts = urlsplit(self.url if isinstance(self.url, str) else "")
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise DefinitionError(f"{self.url!r:.80} is no URL of Redis", next='write "redis://host:6379/0"')
        if parts.password is not None or "password=" in parts.query:
            raise DefinitionError("the password stands in the URL, which is shown", next='write password="env:NAME"')

    @property
    def place(self) -> str:
        """The server and database, for people."""
        parts = urlsplit(self.url)
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}"

    def connect(self) -> Any:
        """Return a client, which connects when it is first asked."""
        redis = load_redis()
        given: dict[str, Any] = {"socket_connect_timeout": _SECONDS, "socket_timeout": _ANSWER_S}
        if self.user is not None:
            given["username"] = self.user
        if self.password is not None:
            given["password"] = secret(self.password, "password")
        # No repetition by the client: whether a command was done is this sink's to find out.
        return redis.Redis.from_url(self.url, retry=None, retry_on_error=[], **given)

    @contextlib.contextmanager
    def errors(self, doing: str, use: Literal["prepare", "commit"] = "prepare") -> Iterator[None]:
        """Let no error of the client out.

        Args:
            doing: for errors, such as "writing rows".
            use: "commit" where it is decided what is written.

        Raises:
            PoundlockError: what it means.
        """
        try:
            yield
        except load_redis().RedisError as error:
            raise self._explain(error, doing, use) from error

    def _explain(self, error: Exception, doing: str, use: str) -> PoundlockError:
        exceptions = load_redis().exceptions
        message = redact_text(" ".join(str(error).split()), [self.password] if self.password else [])
        what = f"Redis at {self.place}, {doing}: {message}"
        if isinstance(error, exceptions.AuthenticationError | exceptions.NoPermissionError) or message.startswith(
            ("NOAUTH", "WRONGPASS", "NOPERM")
        ):
            if use == "commit":
                return CommitUnknown(what)
            return DefinitionError(what, next="check user and password, and what ACL LIST lets this user do")
        away = isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError)
        if (
            away
            or message.startswith(_PASSING)
            or isinstance(error, exceptions.BusyLoadingError | exceptions.ReadOnlyError)
        ):
            if use == "commit":
                return CommitUnknown(what)
            return TransientError(what, next="see that the server runs, and has memory; a restart goes on")
        return TerminalError(what, next="mend what the server names, then start the job again")
