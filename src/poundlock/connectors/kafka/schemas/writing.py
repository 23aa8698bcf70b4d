"""What is looked at before a sink of framed values writes: that its registry answers, and takes its schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from poundlock.connectors.kafka.schemas.client import NotRegistered, client_of, open_client_of
from poundlock.connectors.kafka.schemas.formats import RegistryFormat
from poundlock.connectors.kafka.schemas.registered import Answers
from poundlock.connectors.kafka.schemas.registry import SchemaRegistry
from poundlock.errors import DefinitionError, TerminalError


def known_answers(formats: Iterable[object]) -> Mapping[SchemaRegistry, Answers]:
    """Return what the registries of some formats answered to this process; nothing is asked."""
    registries = {format.registry for format in formats if isinstance(format, RegistryFormat)}
    clients = {registry: open_client_of(registry) for registry in registries}
    return {registry: client.answers() for registry, client in clients.items() if client is not None}


def check_registry(format: RegistryFormat, topic: str | None, *, is_key: bool) -> None:
    """Register the schema of a sink where it does not depend on its rows; else see that the registry answers.

    Args:
        topic: None: each record has its own.

    Raises:
        DefinitionError: the registry refuses the schema, or this user, or does not have what is to be written by.
        TransientError: it does not answer.
    """
    client = client_of(format.registry)
    known = format.registers
    try:
        if topic is None and format.subject is None:
            client.versions("poundlock")  # which need not be there: the registry has to answer
        elif format.use_latest:
            client.latest(format.subject_of(topic or "", is_key=is_key))
        elif known is not None:
            text, references, name = known
            subject = format.subject_of(topic or "", is_key=is_key, name=name)
            client.id_of(subject, format.kind, text, references, register=format.auto_register)
        else:
            client.versions(format.subject or f"{topic}-{'key' if is_key else 'value'}")
    except (TerminalError, NotRegistered) as error:
        raise DefinitionError(
            str(error).partition("\n")[0], next="correct the format of the sink, or the registry's subject"
        ) from error
