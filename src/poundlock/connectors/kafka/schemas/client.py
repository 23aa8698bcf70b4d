"""Who asks a schema registry: Confluent's client, with each failure as one of ours, and schemas with all that they refer to.

Confluent's is the client that follows the interface: logins, TLS, several addresses and repetition are its own. It is loaded where a registry is
asked for the first time in a process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

from poundlock.connectors.kafka.schemas.registered import Answers, Reference, RegisteredSchema, Registration, SchemaKind
from poundlock.connectors.kafka.schemas.registry import SchemaRegistry
from poundlock.connectors.kafka.schemas.token_login import TokenLogin
from poundlock.errors import DefinitionError, PoundlockError, TerminalError, TransientError, required

_PASSING = (408, 425, 429)
_NOT_KNOWN = 401
_REFUSED = (_NOT_KNOWN, 403)
_NOT_COMPATIBLE = 409
_NOT_THERE = 404
_VERSIONS = 200  # of a subject that are fetched before anything is read
_log = logging.getLogger(__name__)
_REGISTRIES = 32  # whose clients a process keeps


class NotRegistered(Exception):
    """The registry answers that it has no such schema or subject."""


def load(module: str = "") -> Any:
    """Return Confluent's package for registries or a module of it. Raises DefinitionError where what it needs is not installed."""
    return required(f"confluent_kafka.schema_registry{module}", "a schema registry", "registry", "authlib")


class RegistryClient:
    """Asks one registry. What a number or a version means is asked once, since it never changes; so is what a schema was registered as."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        package = load()
        self._package = package
        self._login = TokenLogin(registry)
        try:
            self._client = package.SchemaRegistryClient({**registry.settings(), **self._login.settings()})
        except (OSError, ValueError, TypeError) as error:
            raise DefinitionError(
                f"schema registry {registry.url}: {error}", next="correct the argument of SchemaRegistry"
            ) from error
        _OPEN[registry] = self
        self._by_id = lru_cache(registry.cache_size)(self._ask_id)
        self._by_version = lru_cache(registry.cache_size)(self._ask_version)
        self._answered: dict[str, Sequence[RegisteredSchema]] = {}
        self._latest: dict[str, RegisteredSchema] = {}
        self._numbers: dict[Registration, int] = {}

    def schema(self, number: int) -> RegisteredSchema:
        """Return the schema of a number.

        Raises:
            NotRegistered: there is none.
            TransientError: the registry does not answer.
            TerminalError: it refuses.
        """
        return self._by_id(number)

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest schema of a subject; never kept. Raises as `schema` does, TerminalError where there is no such subject."""
        try:
            with self._asking(f"the newest schema of {subject!r}"):
                self._client.clear_latest_caches()
                answer = self._client.get_latest_version(subject)
        except NotRegistered as error:
            raise TerminalError(
                f"schema registry {self._registry.url} has no subject {subject!r}", next=f"register its schema: {error}"
            ) from None
        latest = self._latest[subject] = self._registered(answer.schema_id, answer.schema, subject, int(answer.version))
        return latest

    def latest_or_known(self, subject: str) -> RegisteredSchema:
        """Return the newest schema of a subject; where the registry does not answer, the one that it answered before. Raises as `latest`."""
        try:
            return self.latest(subject)
        except TransientError as error:
            if subject not in self._latest:
                raise
            _log.warning("%s; going on with the newest schema that is known", error.what)
            return self._latest[subject]

    def answers(self) -> Answers:
        """Return what was answered of what sinks ask."""
        return Answers(dict(self._latest), dict(self._numbers))

    def learn(self, answers: Answers) -> None:
        """Take what was answered to another process; what was answered to this one is newer."""
        self._latest = {**answers.latest, **self._latest}
        self._numbers = {**answers.numbers, **self._numbers}

    def versions(self, subject: str) -> Sequence[RegisteredSchema]:
        """Return the newest schemas of a subject; none where there is no such subject. Raises as `schema` does.

        Where the registry does not answer, those that it answered before in this process are returned: what they are never changes.
        """
        try:
            with self._asking(f"the versions of {subject!r}"):
                numbers = self._client.get_versions(subject)[-_VERSIONS:]
            known = [self._by_version(subject, number) for number in numbers]
        except NotRegistered:
            known = []
        except TransientError as error:
            if subject not in self._answered:
                raise
            _log.warning("%s; going on with the schemas that are known", error.what)
            return self._answered[subject]
        self._answered[subject] = known
        return known

    def id_of(
        self, subject: str, kind: SchemaKind, text: str, references: tuple[Reference, ...], *, register: bool
    ) -> int:
        """Return the number that a schema has under a subject.

        Registered is what is not there yet, what it refers to before it, so that a repetition changes nothing: by its text the registry knows it
        again.

        Args:
            references: all that it refers to, also through others, each behind those that it refers to itself.
            register: whether it is registered where it is not there.

        Raises:
            TerminalError: it is not there and not registered, or the registry refuses it, such as for what is not compatible.
            TransientError: the registry does not answer.
        """
        asked: Registration = (subject, kind, text, references)
        if asked not in self._numbers:
            self._numbers[asked] = self._ask_number(*asked, register)
        return self._numbers[asked]

    # --- what is asked ------------------------------------------------------------------------------------------------

    def _ask_id(self, number: int) -> RegisteredSchema:
        with self._asking(f"schema {number}"):
            return self._registered(number, self._client.get_schema(number))

    def _ask_version(self, subject: str, version: int) -> RegisteredSchema:
        with self._asking(f"version {version} of {subject!r}"):
            answer = self._client.get_version(subject, version)
        return self._registered(answer.schema_id, answer.schema, subject, version)

    def _ask_number(
        self, subject: str, kind: SchemaKind, text: str, references: tuple[Reference, ...], register: bool
    ) -> int:
        versions: dict[str, tuple[str, int]] = {}
        for each in references:
            version = each.version
            if not version:
                used = [(name, *versions[name]) for name in each.uses]
                of = self._schema(kind, each.text, used)
                # Who has just registered it is not answered which version that is.
                version = (
                    self._registration(each.subject, of, register)[1] or self._registration(each.subject, of, False)[1]
                )
            versions[each.name] = (each.subject, version)
        used = [(each.name, *versions[each.name]) for each in references if each.is_direct]
        return self._registration(subject, self._schema(kind, text, used), register)[0]

    def _schema(self, kind: SchemaKind, text: str, used: Sequence[tuple[str, str, int]]) -> Any:
        """Return a schema as the client takes it.

        Args:
            used: what it refers to: each one's name, subject and version.
        """
        return self._package.Schema(text, kind, [self._package.SchemaReference(*each) for each in used])

    def _registration(self, subject: str, schema: Any, register: bool) -> tuple[int, int]:
        """Return number and version of a schema under a subject; version 0 where it was registered right now."""
        try:
            with self._asking(f"the schema of {subject!r}"):
                match = self._client.lookup_schema(subject, schema)
            return int(match.schema_id), int(match.version or 0)
        except NotRegistered as error:
            if not register:
                raise TerminalError(
                    f"the schema is not registered under {subject!r}, and auto_register is off: {error}",
                    next="register it, or leave auto_register=False out",
                ) from None
        with self._asking(f"the registration under {subject!r}"):
            return int(self._client.register_schema(subject, schema)), 0

    def _registered(self, number: int, schema: Any, subject: str = "", version: int = 0) -> RegisteredSchema:
        kind: SchemaKind = schema.schema_type or "AVRO"
        references = tuple(self._references(schema))
        return RegisteredSchema(int(number), kind, schema.schema_str, references, subject, version)

    def _references(self, schema: Any) -> Iterator[Reference]:
        """Yield what a schema refers to, each behind those that it refers to itself, and once."""
        given: set[str] = set()
        direct = {each.name for each in schema.references or ()}
        for each in schema.references or ():
            of = self._by_version(each.subject, each.version)
            uses = tuple(inner.name for inner in of.references if inner.is_direct)
            own = Reference(each.name, each.subject, each.version, of.text, uses)
            for reference in (*of.references, own):
                if reference.name not in given:
                    given.add(reference.name)
                    yield replace(reference, is_direct=reference.name in direct)

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Have each failure of the client be one of ours."""
        errors = load(".error")
        where = f"schema registry {self._registry.url}"
        try:
            yield
            self._login.taken()
        except errors.SchemaRegistryError as error:
            status = int(error.http_status_code)
            if status != _NOT_KNOWN:
                self._login.taken()
            elif self._login.given_up():
                raise TransientError(
                    f"{where} does not take a token any more that it took before",
                    next="the next question has a new one",
                ) from error
            if status == _NOT_THERE:
                raise NotRegistered(str(error.error_message)) from error
            if status in _PASSING or status >= 500:
                raise TransientError(
                    f"{where} could not answer for {what}: {error}", next="see that the registry runs"
                ) from error
            if status in _REFUSED:
                raise TerminalError(
                    f"{where} refuses this user for {what}: {error}", next="check the login of SchemaRegistry(…)"
                ) from error
            if status == _NOT_COMPATIBLE:
                raise TerminalError(
                    f"{where} refuses {what}, since it is not compatible with what is there: {error}",
                    next="change the columns so that old readers can read them, or the subject's compatibility",
                ) from error
            raise TerminalError(f"{where} refuses {what}: {error}", next="correct the schema or the subject") from error
        except PoundlockError:
            raise
        except Exception as error:  # of the HTTP client below, which two packages may be
            raise TransientError(
                f"{where} does not answer for {what}: {error or type(error).__name__}",
                next="see that the registry runs, and that its address is right",
            ) from error


_OPEN: WeakValueDictionary[SchemaRegistry, RegistryClient] = WeakValueDictionary()


def open_client_of(registry: SchemaRegistry) -> RegistryClient | None:
    """Return the client of a registry, None where this process has not asked it."""
    return _OPEN.get(registry)


@lru_cache(_REGISTRIES)
def client_of(registry: SchemaRegistry) -> RegistryClient:
    """Return the client of a registry, one in a process."""
    return RegistryClient(registry)
