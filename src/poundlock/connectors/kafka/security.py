"""KafkaSecurity: one set of words for TLS and SASL, whichever client talks to the cluster.

Secrets are read when a client is made, see login.py, and appear in no repr.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from poundlock.connectors.kafka.login import Redacted, login
from poundlock.errors import DefinitionError

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


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
        if self.uses_sasl and self.mechanism is None:
            raise DefinitionError(
                f"{self.protocol} needs a mechanism", next='give mechanism="SCRAM-SHA-512" or another'
            )
        needed = {"PLAIN": ("username", "password"), "OAUTHBEARER": ("token_url", "client_id", "client_secret")}
        needed["SCRAM-SHA-256"] = needed["SCRAM-SHA-512"] = needed["PLAIN"]
        if self.uses_sasl:
            self._require(f"mechanism {self.mechanism}", needed.get(str(self.mechanism), ()))
        else:
            self._forbid(("mechanism", "username", "password", "token_url", "client_id", "client_secret"))
        if not self.uses_tls:
            self._forbid(("ca", "certificate", "key", "key_password"))
        if (self.certificate is None) != (self.key is None):
            raise DefinitionError("mutual TLS needs both a certificate and a key", next="give certificate=… and key=…")

    @property
    def uses_sasl(self) -> bool:
        """Whether a connection begins by saying who one is."""
        return self.protocol.startswith("SASL")

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
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

    def confluent(self) -> Redacted:
        """Return the settings for confluent-kafka.

        Raises:
            DefinitionError: a secret or file cannot be read.
        """
        return login(self).confluent()

    def kafka_python(self) -> dict[str, Any]:
        """Return the settings for kafka-python.

        Raises:
            DefinitionError: a secret or file cannot be read, or a certificate or key cannot be used.
        """
        return login(self).kafka_python()
