"""The Kafka clients, loaded where one is first asked for: both are extras."""

from __future__ import annotations

import importlib
from typing import Any

from poundlock.errors import DefinitionError


def confluent(module: str = "") -> Any:
    """Return the package confluent_kafka or a module of it. Raises DefinitionError if it is not installed."""
    return _load("confluent_kafka", "confluent-kafka", module)


def kafka_python(module: str = "") -> Any:
    """Return the package kafka (kafka-python) or a module of it. Raises DefinitionError if it is not installed."""
    return _load("kafka", "kafka-python", module)


def google_crc32c() -> Any:
    """Return the package google_crc32c. Raises DefinitionError if it is not installed."""
    return _load("google_crc32c", "google-crc32c", "")


def _load(package: str, project: str, module: str) -> Any:
    try:
        return importlib.import_module(f"{package}.{module}" if module else package)
    except ImportError as error:
        raise DefinitionError(f"Kafka needs the package {project}", next="pip install 'poundlock[kafka]'") from error
