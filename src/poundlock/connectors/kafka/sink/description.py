"""A Kafka sink as JSON and back, for fsck: what it takes to ask about transactions and end them, and no secret.

A secret that the user wrote into the job is left out; one that is kept in the environment or a file is found there again.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from poundlock.checkpoint.participant import JSON
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    from poundlock.connectors.kafka.sink.sink import KafkaSink


_SECRETS = ("password", "key_password", "client_secret")
_SECURITY = frozenset(f.name for f in fields(KafkaSecurity))
_FIELDS = ("bootstrap_servers", "guarantee", "transactional_id_prefix", "marker_topic", "commit_mode")


def describe(sink: KafkaSink) -> JSON:
    """Return a sink's description."""
    security = {name: getattr(sink.security, name) for name in sorted(_SECURITY)}
    for name in _SECRETS:
        value = security[name]
        if value is not None and not value.startswith(("env:", "file:")):
            security[name] = "env:POUNDLOCK_KAFKA_" + name.upper()
    topic = sink.topic if isinstance(sink.topic, str) else None
    values = {name: getattr(sink, name) for name in _FIELDS} | {"transactional_id_prefix": sink.effective_prefix}
    return {"v": 1, "kind": "kafka", **values, "topic": topic, "timeout_ms": sink.timeout_ms, "security": security}


def settings(description: JSON) -> dict[str, Any]:
    """Return the arguments of KafkaSink for a description. Raises DefinitionError for a version that is not known."""
    if description.get("v") != 1 or description.get("kind") != "kafka":
        raise DefinitionError(
            f"a Kafka sink of version {description.get('v')!r} is not known here", next="use a newer poundlock"
        )
    from poundlock.connectors.kafka.sink.sink import TopicExpression

    return {
        **{name: description[name] for name in _FIELDS if name in description},
        "topic": description["topic"] or TopicExpression("topic"),
        "transaction_timeout": f"{description['timeout_ms']} ms",
        "security": KafkaSecurity(**{n: v for n, v in description["security"].items() if n in _SECURITY}),
    }
