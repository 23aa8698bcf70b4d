"""How a database is reached by JDBC, by the source and by the sink: URL, user, properties, and the driver with its jars."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from poundlock.connectors.jdbc.bridge import Connect, Connection, connector
from poundlock.connectors.secrets import secret
from poundlock.errors import DefinitionError
from poundlock.redaction import redact_text

# As a property behind the URL or in it, before a host (MySQL), or behind the user (Oracle).
_SECRET = re.compile(r"[?&;:,(](?:password|pwd)=|//[^/@:;?]*:[^/@;?]+@|^jdbc:oracle:\w+:[^/@]+/[^/@]+@", re.IGNORECASE)
_TABLE = re.compile(r"\"?[A-Za-z_][\w$ ]*\"?(\.\"?[A-Za-z_][\w$ ]*\"?){0,2}")


@dataclass(frozen=True)
class JdbcLogin:
    """Which database, as whom, by which driver; the arguments are those of JdbcSink."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    driver: str | None = None
    jars: Sequence[str] = ()

    def check(self) -> None:
        """Raise DefinitionError unless the URL is one that may be shown."""
        if not isinstance(self.url, str) or not self.url.startswith("jdbc:"):
            raise DefinitionError("url= is not a JDBC URL", next='write url="jdbc:mysql://host:3306/database"')
        if _SECRET.search(self.url):
            raise DefinitionError(
                "the password stands in the JDBC URL, which is shown", next='write password="env:NAME" instead'
            )

    @property
    def place(self) -> str:
        """The URL without what stands behind it."""
        return re.split(r"[?;]", self.url, maxsplit=1)[0].removeprefix("jdbc:")

    @property
    def key(self) -> str:
        """What a connection is kept under; properties, which may be secret, by their digest."""
        digest = hashlib.sha256(json.dumps(sorted(self.properties.items()), default=str).encode()).hexdigest()
        return json.dumps([self.url, self.user, self.driver, list(self.jars), digest])

    def connect(self, way: Connect | None = None, *, columns: bool = False) -> Connection:
        """Return a new connection. Raises JdbcError.

        Args:
            way: what makes it; None = what the runtime gave to this process.
            columns: whether rows are read as columns.
        """
        properties = {str(k): secret(str(v), f"property {k}") for k, v in self.properties.items()}
        if self.user is not None:
            properties["user"] = self.user
        if self.password is not None:
            properties["password"] = secret(self.password, "password")
        made = way or connector()
        return made(self.url, properties, self.driver, [str(jar) for jar in self.jars], columns=columns)

    def redacted(self, text: str) -> str:
        """Return a text of the database without secrets."""
        return redact_text(text, [self.password] if self.password else [])


def check_table(name: str, value: object) -> None:
    """Raise DefinitionError unless an argument is the name of a table."""
    if not isinstance(value, str) or not _TABLE.fullmatch(value):
        raise DefinitionError(f"{name}={value!r} is not the name of a table", next=f'write {name}="schema.name"')
