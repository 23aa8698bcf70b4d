"""Who a task is to a Kafka cluster: KafkaSecurity with its secrets and files read, so that it can travel to other machines.

Nothing of it is shown in a repr; it is pickled with the plan, and written nowhere.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from poundlock.connectors.kafka.client_loader import kafka_python
from poundlock.connectors.kafka.security import KafkaSecurity, secret
from poundlock.connectors.secrets import content
from poundlock.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class Login:
    """How to connect, with everything read that `KafkaSecurity` names by its place.

    Args:
        security: the settings; its secrets and paths are not used.
        password, client_secret, key_password: the secrets themselves.
        ca, certificate, key: content of the PEM files.
    """

    security: KafkaSecurity
    password: str | None = field(default=None, repr=False)
    client_secret: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    ca: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether a connection begins by saying who one is."""
        return self.security.protocol.startswith("SASL")


def login(security: KafkaSecurity) -> Login:
    """Return the login that settings describe, with secrets and files read on this machine.

    Raises:
        DefinitionError: a secret or file cannot be read.
    """
    s = security
    files = {name: getattr(s, name) for name in ("ca", "certificate", "key")}
    secrets = {name: getattr(s, name) for name in ("password", "client_secret", "key_password")}
    return Login(
        s,
        **{name: None if path is None else content(path, f"Kafka {name}") for name, path in files.items()},
        **{name: None if text is None else secret(text, f"Kafka {name}") for name, text in secrets.items()},
    )


@cache
def tls_context(who: Login) -> ssl.SSLContext:
    """Return the TLS settings of a login.

    Raises:
        DefinitionError: a certificate or key cannot be used.
    """
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
    """Return kafka-python's half of a SASL exchange with a broker.

    Args:
        who: the login.
        host: the broker's name.
    """
    s = who.security
    settings: dict[str, Any] = {"host": host, "security_protocol": s.protocol, "sasl_mechanism": str(s.mechanism)}
    if s.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = _token_provider(who)
    else:
        settings |= {"sasl_plain_username": s.username, "sasl_plain_password": who.password}
    return kafka_python("net.sasl").get_sasl_mechanism(str(s.mechanism))(**settings)


@cache
def _token_provider(who: Login) -> Any:
    from poundlock.connectors.kafka.oauth import token_provider

    s = who.security
    return token_provider(str(s.token_url), str(s.client_id), str(who.client_secret), s.scope)
