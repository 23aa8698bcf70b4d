"""The bearer token of each question to a registry: a given one, or those that a provider gives, each before the last one expires."""

from __future__ import annotations

import json
import urllib.error
from typing import Any

from poundlock.connectors.kafka.schemas.registry import SchemaRegistry
from poundlock.errors import TerminalError, TransientError

_PASSING = (408, 425, 429)
_BODY = 300  # characters of what a provider says that are shown


class TokenLogin:
    """Who a registry is asked as, where that is a token.

    A token that the registry took and then refuses before its time, since it was revoked or its provider has other keys now, is given up once; one
    that it never took is a wrong login.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._held = registry.held_token()
        self._shown: str | None = None
        self._taken: str | None = None

    def settings(self) -> dict[str, Any]:
        """Return the settings of Confluent's client; none where the login is another one."""
        if self._held is None:
            return {}
        return {
            "bearer.auth.credentials.source": "CUSTOM",
            "bearer.auth.custom.provider.function": lambda config: self._fields(),
            "bearer.auth.custom.provider.config": {},
        }

    def taken(self) -> None:
        """Note that the registry took the token."""
        self._taken = self._shown

    def given_up(self) -> bool:
        """Return whether the token that was shown is one of before, which the registry took then: the next question has a new one."""
        if self._held is None or self._shown is None or self._shown != self._taken or self._registry.token is not None:
            return False
        self._held.drop(self._shown)
        self._taken = None
        return True

    def _fields(self) -> dict[str, str]:
        registry = self._registry
        self._shown = self._token()
        fields = {"bearer.auth.token": self._shown, "bearer.auth.logical.cluster": registry.logical_cluster or ""}
        pool = registry.identity_pool
        return fields if pool is None else {**fields, "bearer.auth.identity.pool.id": pool}

    def _token(self) -> str:
        """Return the token to show.

        Raises:
            TerminalError: its provider refuses this client.
            TransientError: it does not answer.
        """
        assert self._held is not None
        where = f"{self._registry.token_url}, which gives tokens for schema registry {self._registry.url},"
        try:
            return self._held.token()
        except urllib.error.HTTPError as error:
            if error.code in _PASSING or error.code >= 500:
                raise TransientError(f"{where} answers {error.code}", next="see that the provider runs") from error
            raise TerminalError(
                f"{where} refuses this client: {error.code} {_reason(error)}",
                next="check token_url, client_id, client_secret and scope of SchemaRegistry(…)",
            ) from error
        except OSError as error:
            raise TransientError(
                f"{where} does not answer: {error}", next="see that the provider runs, and that token_url is right"
            ) from error
        except ValueError as error:
            raise TerminalError(
                f"{where} gives none: {error}", next="correct token_url of SchemaRegistry(…)"
            ) from error


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the reason of the provider, as RFC 6749, 5.2 has it."""
    text = error.read(_BODY).decode(errors="replace")
    try:
        given = json.loads(text)
        return ": ".join(str(given[name]) for name in ("error", "error_description") if given.get(name))
    except (ValueError, AttributeError):
        return " ".join(text.split())
