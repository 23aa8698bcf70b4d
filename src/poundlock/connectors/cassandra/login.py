"""How Cassandra is reached: contact points, as whom, and one session a process, which tasks of it use one after the other.

A password is read when a connection is made, and stands in no message and no description.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from poundlock.connectors.secrets import secret
from poundlock.errors import DefinitionError, PoundlockError, TransientError, required

_PROTOCOL = 4  # the oldest in which a value can be left as it is; every Cassandra since 2.2 and every Scylla speaks it
_kept: dict[tuple[int, CassandraLogin], Any] = {}  # of this process; made again when it is needed again


def load_driver(module: str = "cassandra.cluster") -> Any:
    """Return a module of the client. Raises DefinitionError where it is not installed."""
    return required(module, "a sink of Cassandra", "cassandra", "cassandra-driver")


@dataclass(frozen=True)
class CassandraLogin:
    """Which cluster, as whom.

    Args:
        contact_points: hosts to begin with; the others are learned from them.
        local_dc: the data centre whose nodes are asked; None = that of the first node that answers.
        password: the password itself, "env:NAME" or "file:PATH".
        ca: path of the certificates that TLS trusts; None = without TLS.
        consistency: name of the level.
        timeout_s: how long an answer may take, seconds.
    """

    contact_points: tuple[str, ...]
    port: int
    local_dc: str | None
    user: str | None
    password: str | None = field(repr=False)
    ca: str | None
    consistency: str
    timeout_s: float

    @property
    def name(self) -> str:
        """Contact points and port, for people."""
        return f"{', '.join(self.contact_points)} port {self.port}"

    def session(self) -> Any:
        """Return this process's session, which stays open for its next tasks.

        Raises:
            DefinitionError: the client is not installed, or the cluster lets nobody in with these credentials.
            TransientError: no node answers.
        """
        place = (os.getpid(), self)
        if place not in _kept:
            with self.errors("connecting"):
                _kept[place] = self._connect()
        return _kept[place]

    def close(self) -> None:
        """Close this process's session, where there is one."""
        session = _kept.pop((os.getpid(), self), None)
        if session is not None:
            with contextlib.suppress(Exception):
                session.cluster.shutdown()

    def _connect(self) -> Any:
        client, policies = load_driver(), load_driver("cassandra.policies")
        log = logging.getLogger("cassandra")
        if log.level == logging.NOTSET:
            log.setLevel(logging.CRITICAL)  # what it says with stacks comes as errors of this package, in two lines
        level = getattr(load_driver("cassandra").ConsistencyLevel, self.consistency)
        near = policies.DCAwareRoundRobinPolicy(self.local_dc) if self.local_dc else policies.DCAwareRoundRobinPolicy()
        profile = client.ExecutionProfile(
            load_balancing_policy=policies.TokenAwarePolicy(near),
            consistency_level=level,
            request_timeout=self.timeout_s,
            retry_policy=policies.FallthroughRetryPolicy(),  # what failed is repeated here, with pauses
        )
        given: dict[str, Any] = {}
        if self.user is not None:
            auth = load_driver("cassandra.auth")
            given["auth_provider"] = auth.PlainTextAuthProvider(self.user, secret(self.password or "", "password"))
        if self.ca is not None:
            given["ssl_context"] = _tls(self.ca)
            given["ssl_options"] = {"server_hostname": self.contact_points[0]}
        cluster = client.Cluster(
            self.contact_points,
            port=self.port,
            execution_profiles={client.EXEC_PROFILE_DEFAULT: profile},
            protocol_version=_PROTOCOL,
            connect_timeout=5,
            control_connection_timeout=5,
            **given,
        )
        try:
            return cluster.connect()
        except BaseException:
            cluster.shutdown()
            raise

    @contextlib.contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turn errors of the client into those of this package."""
        cassandra, client = load_driver("cassandra"), load_driver()
        try:
            yield
        except (cassandra.DriverException, client.NoHostAvailable, cassandra.RequestExecutionException) as error:
            raise self.explain(error, doing) from error

    def explain(self, error: Exception, doing: str) -> PoundlockError:
        """Return an error of the client in this package's words."""
        cassandra, client = load_driver("cassandra"), load_driver()
        what = f"Cassandra at {self.name}, {doing}: {_text(error)}"
        inner = list(error.errors.values()) if isinstance(error, client.NoHostAvailable) and error.errors else [error]
        if any(isinstance(each, (cassandra.AuthenticationFailed, cassandra.Unauthorized)) for each in inner):
            return DefinitionError(
                what, next="check user and password, and GRANT this user SELECT and MODIFY on the table"
            )
        if isinstance(error, cassandra.InvalidRequest):
            return DefinitionError(
                what, next="compare the table with the rows of the sink: poundlock explain shows them"
            )
        return TransientError(what, next="see that the nodes run and what they log: nodetool status; it is repeated")


def _tls(ca: str) -> Any:
    import ssl

    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise DefinitionError(
            f"ca={ca!r} cannot be read: {error}", next="give the path of a file with certificates"
        ) from error


def _text(error: Exception) -> str:
    if isinstance(error, load_driver().NoHostAvailable) and error.errors:
        return "; ".join(f"{host}: {' '.join(str(each).split())}" for host, each in dict(error.errors).items())
    return " ".join(str(error).split()) or type(error).__name__
