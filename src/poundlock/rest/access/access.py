"""How a REST server may be reached, by the settings, and that it is never open to a network by an oversight.

Beyond the loopback a server has TLS, unless `rest.insecure` says by name that it has none; a token it always has.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from poundlock.config import Settings
from poundlock.control.operations_log import OperationsLog
from poundlock.errors import DefinitionError
from poundlock.rest.access.certificate import Certificate
from poundlock.rest.access.tokens import TokenStore, read_tokens

_TLS = "security.ssl.rest."


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Who is let in, and who learns of it.

    Args:
        tokens: one of them has to come with every request but those for the page itself.
        hosts: names beside those of this machine's loopback under which a server may be asked; None = under any.
        operations: gets a line for each operation; None = nobody wants to know.
    """

    tokens: TokenStore
    hosts: frozenset[str] | None = None
    operations: OperationsLog | None = None

    @classmethod
    def of_token(cls, token: str) -> Admission:
        """Return that of one token, which may do everything."""
        return cls(tokens=TokenStore(token))


@dataclass(frozen=True, kw_only=True)
class Access:
    """What a server is reached by, beside the token of its process.

    Args:
        certificate: None = plain HTTP.
        token_file: further tokens; None = there are none.
        hosts: names beside those of the loopback under which a server on the loopback may be asked.
    """

    certificate: Certificate | None = None
    token_file: Path | None = None
    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: Settings, address: str) -> Access:
        """Return what the settings say of a server that listens on an address of this machine, and answers nobody yet.

        Raises:
            DefinitionError: files cannot be used, or whoever is on the way could read the token.
        """
        certificate = _certificate(settings)
        host, outside = settings.rest_bind_address, not is_loopback(address)
        if outside and certificate is None and not settings.rest_insecure:
            raise DefinitionError(
                f"rest.bind-address={host} is beyond the loopback, and without TLS all on the way can read the token",
                next=f"set {_TLS}enabled=true, {_TLS}certificate-file and {_TLS}key-file, or rest.insecure=true to allow that",
            )
        if settings.rest_insecure and (certificate is not None or not outside):
            why = f"{_TLS}enabled is true" if certificate is not None else f"REST listens on {host} only"
            raise DefinitionError(f"rest.insecure=true has no effect: {why}", next="leave rest.insecure out")
        if settings.rest_allowed_hosts and outside:
            raise DefinitionError(
                f"rest.allowed-hosts has no effect: REST listens on {host}, where every name is taken",
                next="leave rest.allowed-hosts out",
            )
        if settings.rest_token_file is not None:
            read_tokens(settings.rest_token_file)
        hosts = frozenset(host.lower() for host in settings.rest_allowed_hosts)
        return cls(certificate=certificate, token_file=settings.rest_token_file, hosts=hosts)


def _certificate(settings: Settings) -> Certificate | None:
    given = {
        "certificate-file": settings.security_ssl_rest_certificate_file,
        "key-file": settings.security_ssl_rest_key_file,
    }
    if not settings.security_ssl_rest_enabled:
        useless = next((name for name, value in given.items() if value is not None), None)
        useless = useless or (None if settings.security_ssl_rest_key_password is None else "key-password")
        if useless is not None:
            raise DefinitionError(
                f"{_TLS}{useless} has no effect without TLS", next=f"set {_TLS}enabled=true, or leave it out"
            )
        return None
    certificate, key = given["certificate-file"], given["key-file"]
    if certificate is None or key is None:
        missing = ", ".join(f"{_TLS}{name}" for name, value in given.items() if value is None)
        raise DefinitionError(
            f"{_TLS}enabled=true needs {missing}", next="name PEM files of the server's certificate and key"
        )
    made = Certificate(
        certificate=certificate.absolute(), key=key.absolute(), password=settings.security_ssl_rest_key_password
    )
    made.context()
    return made


def is_loopback(address: str) -> bool:
    """Return whether what listens on this address can be reached from this machine alone."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
