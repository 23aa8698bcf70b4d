"""Tokens of an OpenID Connect provider for kafka-python; the other clients fetch theirs by themselves.

A token is fetched when one is needed and kept until shortly before it expires.
"""

from __future__ import annotations

import base64
import importlib
import json
import time
import urllib.parse
import urllib.request
from typing import Any


def token_provider(url: str, client_id: str, client_secret: str, scope: str | None) -> Any:
    """Return what kafka-python asks for tokens.

    Args:
        url: where the provider gives tokens.
        client_id, client_secret: who asks.
        scope: what for, None = the provider's default.
    """
    base: Any = importlib.import_module("kafka.net.sasl.oauth").AbstractTokenProvider

    class Provider(base):  # type: ignore[misc]
        held: tuple[float, str] = (0.0, "")

        def token(self) -> str:
            if time.monotonic() > self.held[0]:
                self.held = _fetch(url, client_id, client_secret, scope)
            return self.held[1]

    return Provider()


def _fetch(url: str, client_id: str, client_secret: str, scope: str | None) -> tuple[float, str]:
    """Return when to ask again, by the monotonic clock, and the token."""
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    login = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
    request = urllib.request.Request(
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": f"Basic {login}", "Content-Type": "application/x-www-form-urlencoded"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        token = json.load(answer)
    return time.monotonic() + 0.8 * float(token.get("expires_in", 60)), str(token["access_token"])
