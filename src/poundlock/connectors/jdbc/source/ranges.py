"""Driver's half of a table that is read once: cut into ranges of a column's values when the job starts, and never cut again.

The plan is kept in the source's workspace, so that a position means the same ranges for ever, and a job that died goes on behind those
that were decided.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from poundlock.connectors.base import Split
from poundlock.connectors.jdbc.source.columns import JdbcColumn
from poundlock.connectors.jdbc.source.positions import RangePosition
from poundlock.connectors.jdbc.source.relation import JdbcRelation, fields_of, look_up_again
from poundlock.connectors.jdbc.source.session import JdbcSession, explained
from poundlock.connectors.jdbc.source.values import borders, given_units
from poundlock.errors import SourceGoneError, TerminalError
from poundlock.storage import Storage
from poundlock.storage.json_record import read_record, typed

if TYPE_CHECKING:
    from poundlock.connectors.jdbc.source.source import JdbcSource

_PLANS = "plans"  # a folder of the workspace


class RangeEnumerator:
    """Plans the ranges, once."""

    def __init__(self, source: JdbcSource, workspace: Storage) -> None:
        self._source, self._workspace = source, workspace
        self._plan: tuple[str, int] | None = None  # made in this life: its name, and how many ranges it has
        self._settled = False  # whether only the plan that was decided is left
        self._known: dict[str, dict[str, list[Any]]] = {}

    def initial(self) -> dict[str, Any]:
        return RangePosition(None, 0).to_json()

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        at = self._position(start)
        if at.is_whole:
            return start
        if at.plan is not None:
            name, count = at.plan, at.of
        else:
            self._plan = self._plan or self._make_plan()
            name, count = self._plan
        most = self._source.partitions_per_checkpoint
        last = count if most is None else min(count, at.next + most)
        return RangePosition(name, last, count, read=self._source.reads).to_json()

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Split]:
        first, last = self._position(start), self._position(end)
        if first.next == last.next:
            return []
        name = str(last.plan)
        plan = self._kept(name)
        self._check_columns(plan)
        return [
            Split(
                f"{name}-{i:05d}",
                {"select": plan["selects"][i], "columns": plan["columns"]},
                name=f"range {i + 1} of {len(plan['selects'])}",
            )
            for i in range(first.next, last.next)
        ]

    def finished(self, position: dict[str, Any]) -> bool:
        return self._position(position).is_whole

    def committed(self, position: dict[str, Any]) -> None:
        """Remove the plans of starts that died before they decided anything."""
        name = self._position(position).plan
        if name is None or self._settled:
            return
        for old in list(self._workspace.names(_PLANS)):
            if old != f"{name}.json":
                self._workspace.delete(f"{_PLANS}/{old}")
        self._settled = True

    def _position(self, value: dict[str, Any]) -> RangePosition:
        return RangePosition.from_json(value, self._source.reads)

    def _kept(self, name: str) -> dict[str, list[Any]]:
        if name not in self._known:
            path, next = f"{_PLANS}/{name}.json", "put the job's checkpoint folder back as it was"
            plan = read_record(
                self._workspace, path, lambda data: typed(json.loads(data), dict[str, list[Any]]), next=next
            )
            if plan is None:
                raise SourceGoneError(f"{self._workspace.root} has no plan {name}", next=next)
            self._known = {name: plan}
        return self._known[name]

    def _check_columns(self, plan: dict[str, list[Any]]) -> None:
        """Raise TerminalError if the ranges of an earlier start have other columns than this one says it reads."""
        columns = [JdbcColumn(*fields) for fields in plan["columns"]]
        now = {field.name: field.type for field in self._source.schema()}
        if [(c.name, c.arrow) for c in columns] == list(now.items()):
            return
        changed = [c.name for c in columns if now.get(c.name) != c.arrow] or [
            n for n in now if n not in plan["columns"]
        ]
        raise TerminalError(
            f"{self._source.shown} has other columns now than when its ranges were planned: see {changed[0]!r}",
            next=f"read those of then, columns=[{', '.join(repr(c.name) for c in columns)}], or start the job over into an empty target",
        )

    def _make_plan(self) -> tuple[str, int]:
        source = self._source
        with explained(source.login, f"planning the ranges of {source.shown}", source.shown):
            session = JdbcSession.open(source.login, source.way)
            try:
                relation = look_up_again(session, source)
                conditions = [""] if relation.by is None else self._cut(session, relation)
            finally:
                session.close()
        name = f"{source.clock.now_ms()}-{secrets.token_hex(4)}"
        plan = {"selects": [relation.select(each) for each in conditions], "columns": fields_of(relation)}
        self._workspace.create_exclusive(f"{_PLANS}/{name}.json", json.dumps(plan).encode())
        return name, len(conditions)

    def _cut(self, session: JdbcSession, relation: JdbcRelation) -> list[str]:
        """Return a condition for each range. Rows without a value are in the first, where no lower bound is given."""
        source, measure = self._source, relation.measure
        bounds = {
            name: None if value is None else given_units(measure, name, value)
            for name, value in (("lower_bound", source.lower_bound), ("upper_bound", source.upper_bound))
        }
        low, high = bounds["lower_bound"], bounds["upper_bound"]
        inside = relation.between(None if low is None else low - 1, high)
        ((least, most),) = session.connection.rows(
            f"SELECT MIN({relation.by_name}), MAX({relation.by_name}) FROM {relation.source}{relation.matching(inside)}"
        )
        session.connection.rollback()
        if least is None:
            return [f"{relation.by_name} IS NULL" if low is None else "1 = 0"]
        first, last = measure.units(least), measure.units(most)
        # Rows that are added with greater values are not read: a range is then the same at each reading.
        between = borders(first, last, source.partitions or 1)
        edges = [None if low is None else low - 1, *between, last]
        conditions = [relation.between(above, up_to) for above, up_to in pairwise(edges)]
        if low is None:
            conditions[0] = f"{conditions[0]} OR {relation.by_name} IS NULL"
        return conditions
