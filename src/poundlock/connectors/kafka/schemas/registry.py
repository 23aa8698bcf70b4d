"""SchemaRegistry: where a registry with Confluent's REST interface is, and how to log in to it.

It is a value: it holds no connection, and shows no secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from poundlock.arguments import TEXT, WHOLE, check_kind
from poundlock.connectors.secrets import secret
from poundlock.errors import DefinitionError
from poundlock.values import duration

if TYPE_CHECKING:
    from poundlock.connectors.kafka.schemas.registered import RegisteredSchema


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry: Confluent's, or another that speaks its REST interface, such as Apicurio or Karapace.

    `password`, `token` and `key_password` are the secret itself, "env:NAME" or "file:PATH".

    Args:
        url: where it is, such as "http://localhost:8081"; several with commas, of which the next one is asked where one does not answer.
        username, password: for a login by name (basic authentication).
        token: for a login by bearer token, instead.
        ca: path of a PEM file with the certificates to trust; None = those that come with the package certifi.
        certificate, key: paths of PEM files with the client's certificate and key, for mutual TLS.
        key_password: of an encrypted key.
        timeout: how long one request may take.
        cache_size: how many schemas a process keeps.

    Raises:
        DefinitionError: settings contradict each other, or one is none.
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    timeout: str | timedelta = "10 s"
    cache_size: int = 1000

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in _TEXTS}
        check_kind("SchemaRegistry", TEXT, {"url": self.url})
        check_kind("SchemaRegistry", TEXT, given, optional=True)
        check_kind("SchemaRegistry", WHOLE, {"cache_size": self.cache_size})
        object.__setattr__(self, "timeout", duration(self.timeout))
        places = [place.strip() for place in self.url.split(",")]
        for place in places:
            if not place.startswith(("http://", "https://")):
                raise DefinitionError(
                    f"SchemaRegistry: {place!r} is no address of a registry", next='write "http://localhost:8081"'
                )
            if "@" in place:
                raise DefinitionError(
                    "SchemaRegistry: the address has a login in it, which logs would show",
                    next='give username=… and password="env:NAME"',
                )
        if (self.username is None) is not (self.password is None):
            raise DefinitionError("SchemaRegistry needs both username and password, or neither", next="give both")
        if self.token is not None and self.username is not None:
            raise DefinitionError("SchemaRegistry: a token and a username are two logins", next="leave one of them out")
        tls = ("ca", "certificate", "key", "key_password")
        if not all(place.startswith("https://") for place in places):
            for name in tls:
                if given[name] is not None:
                    raise DefinitionError(
                        f"SchemaRegistry: {name} means nothing to an address without TLS", next="write https://…"
                    )
        if (self.certificate is None) is not (self.key is None):
            raise DefinitionError("SchemaRegistry needs both certificate and key, or neither", next="give both")
        if self.key_password is not None and self.key is None:
            raise DefinitionError("SchemaRegistry: key_password means nothing without key", next="give key=…, too")
        if self.cache_size < 1:
            raise DefinitionError(f"SchemaRegistry: cache_size={self.cache_size} keeps nothing", next="write 1000")

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest schema of a subject as the registry has it now, which formats take as the schema to read or to write by.

        Raises:
            TerminalError: there is no such subject, or the registry refuses this user.
            TransientError: the registry does not answer.
        """
        from poundlock.connectors.kafka.schemas.client import client_of

        return client_of(self).latest(subject)

    def settings(self) -> dict[str, Any]:
        """Return the settings of Confluent's client, with secrets read.

        Raises:
            DefinitionError: a secret cannot be read.
        """
        settings: dict[str, Any] = {
            "url": self.url,
            "timeout": duration(self.timeout).total_seconds(),
            "cache.capacity": self.cache_size,
            "max.retries": 2,
            "retries.wait.ms": 200,
            "retries.max.wait.ms": 2000,
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.key,
        }
        if self.key_password is not None:
            settings["ssl.key.password"] = secret(self.key_password, "SchemaRegistry: key_password")
        if self.password is not None:
            settings["basic.auth.user.info"] = f"{self.username}:{secret(self.password, 'SchemaRegistry: password')}"
        if self.token is not None:
            token = secret(self.token, "SchemaRegistry: token")
            fields = {"bearer.auth.token": token, "bearer.auth.logical.cluster": ""}
            settings["bearer.auth.credentials.source"] = "CUSTOM"
            settings["bearer.auth.custom.provider.function"] = lambda config: fields
            settings["bearer.auth.custom.provider.config"] = {}
        return {name: value for name, value in settings.items() if value is not None}


_TEXTS = ("username", "password", "token", "ca", "certificate", "key", "key_password")
