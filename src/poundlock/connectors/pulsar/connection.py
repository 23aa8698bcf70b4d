"""The way to Pulsar: its URL, the client, and what its refusals mean. Nothing of pulsar-client's leaves this package but a PoundlockError."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from poundlock.connectors.secrets import secret
from poundlock.errors import DefinitionError, PoundlockError, TerminalError, TransientError, required

_ANSWER_S, _CONNECT_MS = 60, 10_000
_PREFLIGHT_S = 5
_REFUSED = (
    "AuthenticationError",
    "AuthorizationError",
    "TopicNotFound",
    "InvalidTopicName",
    "InvalidUrl",
    "InvalidConfiguration",
)
_FINAL = (
    "MessageTooBig",
    "TopicTerminated",
    "IncompatibleSchema",
    "NotAllowedError",
    "OperationNotSupported",
    "UnsupportedVersionError",
)


def load_pulsar() -> Any:
    """Return the client's module. Raises DefinitionError where it is not installed."""
    return required("pulsar", "Pulsar", "pulsar", project="pulsar-client")


@dataclass(frozen=True)
class PulsarAddress:
    """A cluster and how to log in.

    Args:
        url: "pulsar://host:6650", or "pulsar+ssl://host:6651".
        token: by which this user is known; "env:NAME" or "file:PATH". None = nobody asks.
        ca: file with the certificates by which the brokers' are trusted; None = those of the system. Only for pulsar+ssl.

    Raises:
        DefinitionError: it is no such URL.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("pulsar", "pulsar+ssl"):
            raise DefinitionError(
                "url of Pulsar does not begin with pulsar:// or pulsar+ssl://", next='write url="pulsar://host:6650"'
            )
        if self.ca is not None and not self.url.startswith("pulsar+ssl:"):
            raise DefinitionError(
                "ca has no effect, because url does not begin with pulsar+ssl://", next="leave ca out"
            )

    @property
    def shown(self) -> str:
        """Host and port, for people."""
        return urlsplit(self.url).netloc

    def client(self, *, seconds: int = _ANSWER_S) -> Any:
        """Return a client, which connects when it is used; requests are given up after so many seconds."""
        pulsar = load_pulsar()
        more: dict[str, Any] = {}
        if self.token is not None:
            more["authentication"] = pulsar.AuthenticationToken(secret(self.token, "token of Pulsar"))
        if self.ca is not None:
            more["tls_trust_certs_file_path"] = self.ca
        with self.explained("connecting"):
            return pulsar.Client(
                self.url,
                operation_timeout_seconds=seconds,
                connection_timeout_ms=_CONNECT_MS,
                logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),  # errors are raised
                **more,
            )

    @contextmanager
    def explained(self, doing: str) -> Iterator[None]:
        """Turn errors of the client into those of this package.

        Raises:
            DefinitionError: a broker refuses this user, or there is no such topic.
            TransientError: none answers, or somebody else has what is asked for.
            TerminalError: it refuses what is asked of it, and would again.
        """
        try:
            yield
        except load_pulsar().PulsarException as error:
            raise self.explain(error, doing) from error

    def explain(self, error: Any, doing: str) -> PoundlockError:
        """Return the error of this package for one of the client, by what was being done."""
        name = str(error) if not isinstance(error, Exception) else f"{type(error).__name__}: {error}"
        what = f"Pulsar at {self.shown}, {doing}: {name}"
        if any(each in name for each in _REFUSED):
            return DefinitionError(what, next="check url, token and the topic's name, and what this user may do")
        if any(each in name for each in _FINAL):
            return TerminalError(what, next="see docs/pulsar.md")
        return TransientError(what, next="see that the brokers run; the job tries again")

    def check(self, topic: str) -> None:
        """Ask for a topic's partitions. Raises as `explained` does."""
        client = self.client(seconds=_PREFLIGHT_S)
        try:
            with self.explained(f"looking for topic {topic!r}"):
                client.get_topic_partitions(topic)
        finally:
            client.close()


def partitions_of(client: Any, topic: str) -> Sequence[str]:
    """Return the topics that a topic's partitions are, in order; the topic itself where it has none."""
    partitions: list[str] = client.get_topic_partitions(topic)
    return sorted(partitions, key=lambda name: int(name.rpartition("-partition-")[2]) if "-partition-" in name else 0)
