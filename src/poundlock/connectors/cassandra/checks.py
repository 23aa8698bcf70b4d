"""What a CassandraSink may say, when it is written down, and what is asked of its cluster before anything starts."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING

from poundlock.arguments import FLAG, NAMES, TEXT, WHOLE, check_choices, check_kind
from poundlock.connectors.cassandra import table as tables
from poundlock.connectors.cassandra.login import load_driver
from poundlock.connectors.cassandra.table import CassandraTable
from poundlock.connectors.column_checks import need_columns
from poundlock.errors import DefinitionError
from poundlock.values import duration

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.connectors.cassandra.sink import CassandraSink


_LEVELS = ("ONE", "LOCAL_ONE", "LOCAL_QUORUM", "QUORUM", "EACH_QUORUM", "TWO", "THREE", "ALL")
_CLOCKS_APART_S = 1.0
_LONGEST_TTL_S = 20 * 365 * 86_400  # of the server
_seen: dict[tuple[tuple[str, ...], int, str], CassandraTable] = {}  # as preflight saw them


def check_sink(sink: CassandraSink) -> None:
    """Raise DefinitionError for settings that mean nothing or contradict each other."""
    load_driver("cassandra")
    check_kind("CassandraSink", NAMES, {"contact_points": sink.contact_points})
    check_kind("CassandraSink", NAMES, {"columns": sink.columns}, optional=True)
    check_kind("CassandraSink", WHOLE, {"port": sink.port, "requests": sink.requests})
    check_kind("CassandraSink", FLAG, {"ignore_null_fields": sink.ignore_null_fields})
    texts = {name: getattr(sink, name) for name in ("local_dc", "delete_when", "user", "password", "ca")}
    check_kind("CassandraSink", TEXT, texts, optional=True)
    if not sink.contact_points or not all(sink.contact_points):
        raise DefinitionError(
            "CassandraSink has no contact_points", next='write contact_points=["cassandra-1.example"]'
        )
    if not isinstance(sink.table, str) or not re.fullmatch(r"\w+\.\w+", sink.table):
        raise DefinitionError(f"table={sink.table!r} is not keyspace and table", next='write table="keyspace.table"')
    check_choices(sink, {"consistency": _LEVELS})
    if sink.delete_when is not None and sink.delete_when in (sink.columns or ()):
        raise DefinitionError(
            f"delete_when={sink.delete_when!r} is a column that is written", next="leave it out of columns="
        )
    if sink.password is not None and sink.user is None:
        raise DefinitionError("CassandraSink: password= without user= has no effect", next="add user=")
    if not 1 <= sink.requests <= 2048:
        raise DefinitionError(f"requests={sink.requests} is not from 1 to 2048", next="write requests=64")
    for name in ("timeout", "retry_for"):
        if duration(getattr(sink, name)).total_seconds() <= 0:
            raise DefinitionError(f"{name} must be longer than 0", next=f'write {name}="60 s"')
    if sink.ttl_s is not None and not 1 <= sink.ttl_s <= _LONGEST_TTL_S:
        raise DefinitionError(f"ttl={sink.ttl!s} is not from 1 second to 20 years", next='write ttl="30 d"')
    if sink.batch_bytes < 0:
        raise DefinitionError(f"batch_size={sink.batch_size!r} is no size", next='write batch_size="4 KB"')


def check_columns(sink: CassandraSink, name: str, columns: Sequence[str]) -> None:
    """Raise DefinitionError unless rows with these columns have what is written, and the table has columns for it."""
    need_columns(name, sink.needed, columns)
    table = _seen.get(_place(sink))
    if table is not None:
        tables.check_columns(table, name, sink.written(columns))


def check_schema(sink: CassandraSink, name: str, schema: pa.Schema) -> None:
    """Raise DefinitionError unless the types of the rows fit those of the table."""
    table = _seen.get(_place(sink))
    if table is not None:
        tables.check_types(table, name, [schema.field(column) for column in sink.written(schema.names)])
    flag = sink.delete_when
    if flag is not None and flag in schema.names and str(schema.field(flag).type) != "bool":
        raise DefinitionError(
            f"sink {name!r}: delete_when={flag!r} is {schema.field(flag).type}",
            next="make it a boolean column",
            participant=name,
        )


def preflight(sink: CassandraSink) -> None:
    """Raise unless the sink can work; see CassandraSink.preflight."""
    sink.login.close()
    table = tables.look_up(sink.login, sink.table)
    if sink.columns is not None:
        tables.check_columns(table, sink.table, sink.written(sink.columns))
    _check_clock(sink)
    _seen[_place(sink)] = table


def _check_clock(sink: CassandraSink) -> None:
    """Raise DefinitionError where the clocks are apart: timestamps of writers are compared, whoever they are."""
    login = sink.login
    with login.errors("asking for the time"):
        before = time.time()
        (row,) = login.session().execute("SELECT toTimestamp(now()) AS now FROM system.local")
        after = time.time()
    there = row.now.replace(tzinfo=UTC).timestamp()
    apart = max(before - there, there - after, 0.0)
    if apart > _CLOCKS_APART_S:
        raise DefinitionError(
            f"the clock of this machine and that of Cassandra at {login.name} are {apart:.1f} s apart, and of two rows the"
            " later timestamp stays",
            next="let all machines have the time of one server: chronyc tracking",
        )


def _place(sink: CassandraSink) -> tuple[tuple[str, ...], int, str]:
    return (tuple(sink.contact_points), sink.port, sink.table)
