"""KafkaSecurity: one set of words for TLS and SASL, said to both clients: confluent-kafka (C) and kafka-python.

Secrets are read when a client is made, and appear in no repr.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from poundlock.connectors.secrets import content, secret
from poundlock.errors import DefinitionError

__all__ = ["KafkaSecurity", "Redacted", "secret"]

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


class Redacted(dict[str, str]):
    """Settings of a client; those that carry secrets are not shown."""

    def __repr__(self) -> str:
        shown = {k: "***" if _is_secret(k) else v for k, v in self.items()}
        return repr(shown)

    __str__ = __repr__


def _is_secret(name: str) -> bool:
    return any(part in name.lower() for part in ("password", "secret", "ssl.key.pem", "token.value"))


@dataclass(frozen=True, kw_only=True)
class KafkaSecurity:
    """How to talk to a Kafka cluster that asks who one is.

    `password`, `key_password` and `client_secret` are the secret itself, "env:NAME" or "file:PATH".

    Args:
        protocol: "PLAINTEXT", "SSL", "SASL_PLAINTEXT" or "SASL_SSL".
        mechanism: with SASL: "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512" or "OAUTHBEARER".
        username, password: for PLAIN and SCRAM.
        ca: path of a PEM file with the certificates to trust; None = those of the system.
        certificate, key: paths of PEM files with the client's certificate chain and its PKCS#8 key, for mutual TLS.
        key_password: of an encrypted key.
        check_hostname: whether the server's certificate must be for the name that was called.
        token_url, client_id, client_secret, scope: for OAUTHBEARER, of the OpenID Connect provider.
    """

    protocol: Protocol = "PLAINTEXT"
    mechanism: Mechanism | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    token_url: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None

    def __post_init__(self) -> None:
        if self.protocol not in get_args(Protocol):
            raise DefinitionError(
                f"Kafka security protocol {self.protocol!r} is not known", next=f"use one of {get_args(Protocol)}"
            )
        if str(self.mechanism) == "GSSAPI":
            raise DefinitionError(
                "Kerberos (GSSAPI) cannot be used with Kafka: confluent-kafka as pip installs it is built without it",
                next="use SCRAM-SHA-512, OAUTHBEARER or a client's certificate; brokers offer these on a listener besides",
            )
        if self.mechanism is not None and self.mechanism not in get_args(Mechanism):
            raise DefinitionError(
                f"Kafka SASL mechanism {self.mechanism!r} is not known", next=f"use one of {get_args(Mechanism)}"
            )
        if self._sasl and self.mechanism is None:
            raise DefinitionError(
                f"{self.protocol} needs a mechanism", next='give mechanism="SCRAM-SHA-512" or another'
            )
        needed = {"PLAIN": ("username", "password"), "OAUTHBEARER": ("token_url", "client_id", "client_secret")}
        needed["SCRAM-SHA-256"] = needed["SCRAM-SHA-512"] = needed["PLAIN"]
        if self._sasl:
            self._require(f"mechanism {self.mechanism}", needed.get(str(self.mechanism), ()))
        else:
            self._forbid(("mechanism", "username", "password", "token_url", "client_id", "client_secret"))
        if not self._tls:
            self._forbid(("ca", "certificate", "key", "key_password"))
        if (self.certificate is None) != (self.key is None):
            raise DefinitionError("mutual TLS needs both a certificate and a key", next="give certificate=… and key=…")

    @property
    def _sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    @property
    def _tls(self) -> bool:
        return self.protocol.endswith("SSL")

    def _require(self, what: str, names: tuple[str, ...]) -> None:
        missing = [n for n in names if getattr(self, n) is None]
        if missing:
            raise DefinitionError(f"Kafka security with {what} needs {', '.join(missing)}", next=f"give {missing[0]}=…")

    def _forbid(self, names: tuple[str, ...]) -> None:
        # A password next to PLAINTEXT would look as if it protected something.
        default = {f.name: f.default for f in fields(self)}
        given = [n for n in names if getattr(self, n) != default[n]]
        if given:
            raise DefinitionError(
                f"{', '.join(given)} mean nothing with protocol {self.protocol}",
                next='give protocol="SASL_SSL", "SSL" or "SASL_PLAINTEXT" as the servers have it',
            )

    def _secret(self, name: str) -> str:
        return secret(str(getattr(self, name)), f"Kafka {name}")

    def confluent(self) -> Redacted:
        """Return the settings for confluent-kafka.

        Raises:
            DefinitionError: a secret or file cannot be read.
        """
        settings: dict[str, str] = {"security.protocol": self.protocol}
        if self._sasl:
            settings["sasl.mechanism"] = str(self.mechanism)
        if self.mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            settings |= {"sasl.username": str(self.username), "sasl.password": self._secret("password")}
        if self.mechanism == "OAUTHBEARER":
            settings |= {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": str(self.token_url)}
            settings["sasl.oauthbearer.client.id"] = str(self.client_id)
            settings["sasl.oauthbearer.client.secret"] = self._secret("client_secret")
            settings |= {"sasl.oauthbearer.scope": self.scope} if self.scope else {}
        if self._tls:
            settings["ssl.endpoint.identification.algorithm"] = "https" if self.check_hostname else "none"
        if self.ca is not None:
            settings["ssl.ca.pem"] = content(self.ca, "Kafka ca")
        if self.certificate is not None and self.key is not None:
            settings["ssl.certificate.pem"] = content(self.certificate, "Kafka certificate")
            settings["ssl.key.pem"] = content(self.key, "Kafka key")
        if self.key_password is not None:
            settings["ssl.key.password"] = self._secret("key_password")
        return Redacted(settings)

    def kafka_python(self) -> dict[str, object]:
        """Return the settings for kafka-python.

        Raises:
            DefinitionError: a secret or file cannot be read, or the mechanism is one this client lacks.
        """
        settings: dict[str, object] = {"security_protocol": self.protocol}
        if self._sasl:
            settings["sasl_mechanism"] = str(self.mechanism)
        if self.mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            settings |= {"sasl_plain_username": str(self.username), "sasl_plain_password": self._secret("password")}
        if self.mechanism == "OAUTHBEARER":
            from poundlock.connectors.kafka.oauth import token_provider

            settings["sasl_oauth_token_provider"] = token_provider(
                str(self.token_url), str(self.client_id), self._secret("client_secret"), self.scope
            )
        if self._tls:
            settings["ssl_check_hostname"] = self.check_hostname
            paths = {"ssl_cafile": self.ca, "ssl_certfile": self.certificate, "ssl_keyfile": self.key}
            settings |= {name: path for name, path in paths.items() if path is not None}
        if self.key_password is not None:
            settings["ssl_password"] = self._secret("key_password")
        return settings
