"""What YARN knows of an application, asked at the page of its resource manager.

Where that page does not answer, or wants to know who asks, nothing is known: the driver's own word then has to do.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from poundlock.errors import DefinitionError
from poundlock.spark.launch.master import web_addresses, yarn_settings

_TIMEOUT_S = 5.0
_OVER = ("FINISHED", "FAILED", "KILLED")
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a cluster's own page is behind no proxy


@dataclass(frozen=True, kw_only=True)
class Application:
    """An application as the resource manager sees it; `why` is "" where that says nothing about its end."""

    id: str
    state: str
    why: str = ""

    @property
    def over(self) -> bool:
        """Whether YARN runs nothing of it any more and will not start it again."""
        return self.state in _OVER


def ask(id: str, environment: Mapping[str, str] | None = None) -> Application | None:
    """Return what YARN knows of an application; None where it cannot be asked."""
    try:
        addresses = web_addresses(yarn_settings(environment))
    except DefinitionError:
        return None
    for address in addresses:
        wanted = urllib.request.Request(f"{address}/ws/v1/cluster/apps/{id}", headers={"Accept": "application/json"})
        try:
            with _OPENER.open(wanted, timeout=_TIMEOUT_S) as answer:
                report = json.load(answer)["app"]
                return Application(
                    id=id, state=str(report["state"]), why=" ".join(str(report.get("diagnostics") or "").split())
                )
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return Application(id=id, state="FAILED", why="the resource manager knows no such application")
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            continue
    return None
