"""What streaming queries need to keep their checkpoint on a store: jars and settings.

Nothing here is secret: the JVM looks for credentials as this process does, in its environment, profile or machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from poundlock.storage import Storage
from poundlock.storage.s3 import S3Storage
from poundlock.storage.s3_client import PASSED_ON, S3Address

_CREDENTIALS = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"


@dataclass(frozen=True, slots=True)
class StoreNeeds:
    """What Spark needs.

    Args:
        settings: Spark settings; a user's win.
    """

    jar_sets: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)


def needs_of(storage: Storage) -> StoreNeeds:
    """Return what a streaming query needs to keep its checkpoint on a store."""
    if isinstance(storage, S3Storage):
        return StoreNeeds(("s3a",), _s3a(storage.address))
    return StoreNeeds()


def executor_settings() -> dict[str, str]:
    """Return the settings that tell a cluster's executors where S3 is, as this process was told."""
    return {f"spark.executorEnv.{name}": os.environ[name] for name in PASSED_ON if os.environ.get(name)}


def _s3a(address: S3Address) -> dict[str, str]:
    settings = {"aws.credentials.provider": _CREDENTIALS, "path.style.access": str(address.path_style).lower()}
    if address.endpoint is not None:
        settings["endpoint"] = address.endpoint
        settings["connection.ssl.enabled"] = str(address.endpoint.startswith("https://")).lower()
    if address.region is not None or address.endpoint is not None:
        settings["endpoint.region"] = address.region or "us-east-1"
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}
