"""How MongoDB is reached: its address, as whom, and one client a process, which tasks of it use one after the other.

A password is read when a connection is made, and stands in no message and no description.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from poundlock.connectors.secrets import secret
from poundlock.errors import DefinitionError, PoundlockError, TransientError, required

NOT_ALLOWED = (13, 18, 8000)  # Unauthorized, AuthenticationFailed, AtlasError
_FIND_S = 10.0
_kept: dict[tuple[int, MongoLogin], Any] = {}  # of this process; made again when it is needed again


def load_client(module: str = "pymongo") -> Any:
    """Return a module of the client. Raises DefinitionError where it is not installed."""
    return required(module, "a sink of MongoDB", "mongodb", "pymongo")


@dataclass(frozen=True)
class MongoLogin:
    """Which cluster, as whom.

    Args:
        uri: "mongodb://host:port,…/?options" or "mongodb+srv://…", without a user in it.
        password: the password itself, "env:NAME" or "file:PATH".
        ca: path of the certificates that TLS trusts; None = as the address says.
        timeout_s: how long an answer may take, seconds.
    """

    uri: str
    user: str | None
    password: str | None = field(repr=False)
    ca: str | None
    timeout_s: float

    @property
    def name(self) -> str:
        """The hosts, for people."""
        return self.uri.partition("://")[2].partition("/")[0]

    def client(self) -> Any:
        """Return this process's client, which stays open for its next tasks; nothing is asked yet.

        Raises:
            DefinitionError: pymongo is not installed, or the address or a secret cannot be read.
        """
        place = (os.getpid(), self)
        if place not in _kept:
            with self.errors("reading its address"):
                _kept[place] = load_client().MongoClient(self.uri, **self._options())
        return _kept[place]

    def close(self) -> None:
        """Close this process's client, where there is one."""
        client = _kept.pop((os.getpid(), self), None)
        if client is not None:
            with contextlib.suppress(Exception):
                client.close()

    def _options(self) -> dict[str, Any]:
        milliseconds = round(self.timeout_s * 1000)
        given: dict[str, Any] = {
            "appname": "poundlock",
            "connectTimeoutMS": min(5000, milliseconds),
            "socketTimeoutMS": milliseconds,
            "serverSelectionTimeoutMS": round(min(_FIND_S, self.timeout_s) * 1000),
            "tz_aware": True,
        }
        if self.user is not None:
            given |= {"username": self.user, "password": secret(self.password or "", "password")}
        if self.ca is not None:
            given |= {"tls": True, "tlsCAFile": self.ca}
        return given

    @contextlib.contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turn errors of the client into those of this package."""
        try:
            yield
        except (load_client("pymongo.errors").PyMongoError, OSError) as error:
            raise self.explain(error, doing) from error

    def explain(self, error: Exception, doing: str) -> PoundlockError:
        """Return an error of the client in this package's words."""
        errors = load_client("pymongo.errors")
        text = " ".join(str(error).split(", full error")[0].split(", Timeout:")[0].split())
        what = f"MongoDB at {self.name}, {doing}: {text}"
        if isinstance(error, errors.OperationFailure) and not isinstance(error, errors.ConnectionFailure):
            if error.code in NOT_ALLOWED:
                return DefinitionError(
                    what, next="check user and password, and give this user the role readWrite on the database"
                )
            if error.has_error_label("RetryableWriteError"):
                return TransientError(what, next="see that the cluster has a primary: rs.status(); it is repeated")
            return DefinitionError(what, next="see what the server says, and compare the sink's arguments with it")
        if isinstance(error, (errors.ConfigurationError, errors.InvalidURI, errors.InvalidName)):
            return DefinitionError(what, next='write uri="mongodb://host:27017" and check its options')
        return TransientError(
            what, next="see that its nodes run, and that one of them is the primary: rs.status(); it is repeated"
        )
