"""SchemaRegistry: where a registry with Confluent's REST interface is, and how to log in to it.

It is a value: it holds no connection, and shows no secret.
"""

from __future__ import annotations

import math
import ssl
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from poundlock.arguments import TEXT, WHOLE, check_kind
from poundlock.connectors.secrets import secret
from poundlock.errors import DefinitionError
from poundlock.values import duration

if TYPE_CHECKING:
    from poundlock.connectors.kafka.client_credentials import HeldToken
    from poundlock.connectors.kafka.schemas.registered import RegisteredSchema


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry: Confluent's, or another that speaks its REST interface, such as Apicurio or Karapace.

    `password`, `token`, `client_secret` and `key_password` are the secret itself, "env:NAME" or "file:PATH".

    Args:
        url: where it is, such as "http://localhost:8081"; several with commas, of which the next one is asked where one does not answer.
        username, password: for a login by name (basic authentication).
        token: for a login by bearer token, instead.
        token_url, client_id, client_secret, scope: instead of these, of the OpenID Connect provider that gives bearer tokens to a client with a
            secret, as `bearer.auth.credentials.source=OAUTHBEARER` of Confluent's client. A token is fetched when one is needed, and the next one
            when four fifths of its time are over.
        logical_cluster, identity_pool: what Confluent Cloud wants to know beside a token.
        ca: path of a PEM file with the certificates to trust; None = those that come with the package certifi. The provider of tokens is also trusted by
            those of the system.
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
    token_url: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    logical_cluster: str | None = None
    identity_pool: str | None = None
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
            _check_address(place, "of a registry", "http://localhost:8081")
        self._check_login(given)
        has_tls = all(place.startswith("https://") for place in places)
        tls = ("ca", "certificate", "key", "key_password")
        for name in tls if not has_tls else ():
            if given[name] is not None and not (name == "ca" and (self.token_url or "").startswith("https://")):
                raise DefinitionError(
                    f"SchemaRegistry: {name} means nothing to an address without TLS", next="write https://…"
                )
        if (self.certificate is None) is not (self.key is None):
            raise DefinitionError("SchemaRegistry needs both certificate and key, or neither", next="give both")
        if self.key_password is not None and self.key is None:
            raise DefinitionError("SchemaRegistry: key_password means nothing without key", next="give key=…, too")
        if self.cache_size < 1:
            raise DefinitionError(f"SchemaRegistry: cache_size={self.cache_size} keeps nothing", next="write 1000")

    def _check_login(self, given: dict[str, Any]) -> None:
        """Raise DefinitionError where a login is not whole, or there are two."""
        if (self.username is None) is not (self.password is None):
            raise DefinitionError("SchemaRegistry needs both username and password, or neither", next="give both")
        ways = [name for name in ("username", "token", "token_url") if given[name] is not None]
        if len(ways) > 1:
            raise DefinitionError(
                f"SchemaRegistry: {ways[0]} and {ways[1]} are two logins", next="leave one of them out"
            )
        if self.token_url is None:
            strange = [name for name in ("client_id", "client_secret", "scope") if given[name] is not None]
            if strange:
                raise DefinitionError(
                    f"SchemaRegistry: {strange[0]} means nothing without token_url",
                    next="give token_url=…, the address that gives tokens",
                )
        else:
            _check_address(self.token_url, "that gives tokens", "https://login.example.com/oauth2/token")
            missing = [name for name in ("client_id", "client_secret") if given[name] is None]
            if missing:
                raise DefinitionError(f"SchemaRegistry: token_url needs {missing[0]}", next=f"give {missing[0]}=…, too")
        if self.token is None and self.token_url is None:
            for name in ("logical_cluster", "identity_pool"):
                if given[name] is not None:
                    raise DefinitionError(
                        f"SchemaRegistry: {name} means nothing without a token", next="give token=… or token_url=…"
                    )

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest schema of a subject as the registry has it now, which formats take as the schema to read or to write by.

        Raises:
            TerminalError: there is no such subject, or the registry refuses this user.
            TransientError: the registry does not answer.
        """
        from poundlock.connectors.kafka.schemas.client import client_of

        return client_of(self).latest(subject)

    def settings(self) -> dict[str, Any]:
        """Return the settings of Confluent's client, with secrets read, but for tokens: see `held_token`.

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
            "ssl.ca.location": self.ca if self.url.startswith("https://") else None,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.key,
        }
        if self.key_password is not None:
            settings["ssl.key.password"] = secret(self.key_password, "SchemaRegistry: key_password")
        if self.password is not None:
            settings["basic.auth.user.info"] = f"{self.username}:{secret(self.password, 'SchemaRegistry: password')}"
        return {name: value for name, value in settings.items() if value is not None}

    def held_token(self) -> HeldToken | None:
        """Return what gives the token of each question, None where the login is another one.

        Raises:
            DefinitionError: a secret or a file of certificates cannot be read.
        """
        from poundlock.connectors.kafka.client_credentials import ClientCredentials, HeldToken

        if self.token is not None:
            token = secret(self.token, "SchemaRegistry: token")
            return HeldToken(lambda: (token, math.inf))
        if self.token_url is None:
            return None
        context = ssl.create_default_context()
        if self.ca is not None:
            try:
                context.load_verify_locations(self.ca)
            except OSError as error:
                raise DefinitionError(
                    f"SchemaRegistry: ca: {self.ca} cannot be used: {error}", next="give a file of PEM certificates"
                ) from error
        client_secret = secret(str(self.client_secret), "SchemaRegistry: client_secret")
        timeout_s = duration(self.timeout).total_seconds()
        who = ClientCredentials(self.token_url, str(self.client_id), client_secret, self.scope, timeout_s, context)
        return HeldToken(who.fetch)


def _check_address(text: str, what: str, example: str) -> None:
    """Raise DefinitionError where a text is no address, or has a login in it."""
    if not text.startswith(("http://", "https://")):
        raise DefinitionError(f"SchemaRegistry: {text!r} is no address {what}", next=f'write "{example}"')
    if "@" in text:
        raise DefinitionError(
            "SchemaRegistry: the address has a login in it, which logs would show",
            next='give username=… and password="env:NAME"',
        )


_TEXTS = (
    "username", "password", "token", "token_url", "client_id", "client_secret", "scope", "logical_cluster", "identity_pool",
    "ca", "certificate", "key", "key_password",
)  # fmt: skip
