"""Who a process is to a Kafka cluster: KafkaSecurity with its secrets and files read, so that it can travel to other machines.

Nothing of it is shown in a repr; it is pickled with the plan, and written nowhere. Tasks, confluent-kafka (C) and kafka-python log in
by it; a token of an OpenID Connect provider is fetched when one is needed and kept until shortly before it expires, but for
confluent-kafka, which fetches its own.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from poundlock.connectors.kafka.client_credentials import ClientCredentials, HeldToken
from poundlock.connectors.kafka.client_loader import kafka_python
from poundlock.connectors.secrets import content, secret
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    from poundlock.connectors.kafka.security import KafkaSecurity


class Redacted(dict[str, str]):
    """Settings of a client; those that carry secrets are not shown."""

    def __repr__(self) -> str:
        parts = ("password", "secret", "ssl.key.pem", "token.value")
        return repr({k: "***" if any(part in k.lower() for part in parts) else v for k, v in self.items()})

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class Login:
    """How to connect: the settings, whose own secrets and paths are not used, the secrets, and the content of the PEM files."""

    security: KafkaSecurity
    password: str | None = field(default=None, repr=False)
    client_secret: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    ca: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)

    def confluent(self) -> Redacted:
        """Return the settings for confluent-kafka."""
        s = self.security
        settings = {
            "security.protocol": s.protocol, "sasl.mechanism": s.mechanism, "ssl.ca.pem": self.ca,
            "ssl.certificate.pem": self.certificate, "ssl.key.pem": self.key, "ssl.key.password": self.key_password,
        }  # fmt: skip
        if s.mechanism == "OAUTHBEARER":
            settings |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": s.token_url,
                "sasl.oauthbearer.client.id": s.client_id,
                "sasl.oauthbearer.client.secret": self.client_secret,
                "sasl.oauthbearer.scope": s.scope or None,
            }
        else:
            settings |= {"sasl.username": s.username, "sasl.password": self.password}
        if s.uses_tls:
            settings["ssl.endpoint.identification.algorithm"] = "https" if s.check_hostname else "none"
        return Redacted({name: value for name, value in settings.items() if value is not None})

    def kafka_python(self) -> dict[str, Any]:
        """Return the settings for kafka-python. Raises DefinitionError if a certificate or key cannot be used."""
        s = self.security
        settings: dict[str, Any] = {"security_protocol": s.protocol}
        if s.mechanism is not None:
            settings["sasl_mechanism"] = s.mechanism
        if s.mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = _token_provider(self)
        elif s.mechanism is not None:
            settings |= {"sasl_plain_username": s.username, "sasl_plain_password": self.password}
        if s.uses_tls:
            settings["ssl_context"] = tls_context(self)
        return settings


def login(security: KafkaSecurity) -> Login:
    """Return the login that settings describe, with secrets and files read here. Raises DefinitionError if one cannot be read."""
    read: dict[str, Callable[[str, str], str]] = dict.fromkeys(("password", "client_secret", "key_password"), secret)
    read |= dict.fromkeys(("ca", "certificate", "key"), content)
    given = {name: (how, getattr(security, name)) for name, how in read.items()}
    return Login(
        security, **{name: how(text, f"Kafka {name}") for name, (how, text) in given.items() if text is not None}
    )


@cache
def tls_context(who: Login) -> ssl.SSLContext:
    """Return the TLS settings of a login. Raises DefinitionError if a certificate or key cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = who.security.check_hostname
    try:
        if who.ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cadata=who.ca)
        if who.certificate is not None and who.key is not None:
            _load_chain(context, who.certificate + "\n" + who.key, who.key_password)
    except (ssl.SSLError, ValueError) as error:
        raise DefinitionError(
            f"Kafka's certificates cannot be used: {error}", next="check ca, certificate and key in KafkaSecurity(…)"
        ) from error
    return context


def _load_chain(context: ssl.SSLContext, pem: str, password: str | None) -> None:
    # OpenSSL takes them from a file only; it is there for this moment and for nobody else.
    handle, path = tempfile.mkstemp(prefix="poundlock-tls-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(pem)
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(path, password=password or "")
    finally:
        os.unlink(path)


def sasl_mechanism(who: Login, host: str) -> Any:
    """Return kafka-python's half of a SASL exchange with the broker of a name."""
    return kafka_python("net.sasl").get_sasl_mechanism(who.security.mechanism)(host=host, **who.kafka_python())


@cache
def _token_provider(who: Login) -> Any:
    base: Any = kafka_python("net.sasl.oauth").AbstractTokenProvider

    class Provider(base):  # type: ignore[misc]
        held = HeldToken(_credentials(who).fetch)

        def token(self) -> str:
            return self.held.token()

    return Provider()


def _credentials(who: Login) -> ClientCredentials:
    s = who.security
    return ClientCredentials(str(s.token_url), str(s.client_id), str(who.client_secret), s.scope)
