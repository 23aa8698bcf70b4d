"""Driver's half of a table that only grows: rows in the order of a column whose values rise, such as a serial number or a time.

A row may become visible after one with a greater value. So a value counts as reached only some time after it was first seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from poundlock.connectors.base import Split
from poundlock.connectors.jdbc.source.positions import GrowingPosition
from poundlock.connectors.jdbc.source.relation import JdbcRelation, look_up_again, read_payload
from poundlock.connectors.jdbc.source.session import JdbcSession, explained
from poundlock.connectors.jdbc.source.values import borders, given_units
from poundlock.errors import SourceGoneError

if TYPE_CHECKING:
    from poundlock.connectors.jdbc.source.source import JdbcSource

_MOST_LOOKS = 1000


@dataclass(frozen=True, slots=True)
class SeenValue:
    """The greatest value at one look."""

    units: int
    at_ms: int


def reached(looks: Sequence[SeenValue], now_ms: int, lag_ms: int) -> SeenValue | None:
    """Return the newest look that is old enough; None if there is none yet."""
    old = [look for look in looks if now_ms - look.at_ms >= lag_ms]
    return old[-1] if old else None


class GrowingEnumerator:
    """Looks how far the column has grown, and cuts what is new."""

    def __init__(self, source: JdbcSource) -> None:
        self._source = source
        self._session: JdbcSession | None = None
        self._relation: JdbcRelation | None = None
        self._looks: list[SeenValue] = []
        self._looked: tuple[str | None, int] | None = None  # behind what there was nothing new, and when

    def initial(self) -> dict[str, Any]:
        return GrowingPosition(self._source.start).to_json()

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        source, at = self._source, self._position(start)
        now = source.clock.now_ms()
        if self._looked is not None and self._looked[0] == at.above and now - self._looked[1] < source.poll_ms:
            return start
        try:
            with explained(source.login, f"looking for new rows of {source.shown}", source.shown):
                reach = self._reach(at, now)
                end = at if reach is None else self._end(at, reach.units)
        except BaseException:
            self.close()
            raise
        # A backlog is read checkpoint after checkpoint; only when there is nothing new the table is left alone for a while.
        self._looked = (at.above, now) if end == at else None
        return start if end == at else end.to_json()

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Split]:
        before, last = self._position(start), self._position(end)
        if before.above == last.above:
            return []
        try:
            with explained(self._source.login, f"planning the rows of {self._source.shown}", self._source.shown):
                _, relation = self._connect()
        except BaseException:
            self.close()
            raise
        edges = [before.above, *last.cuts, last.above]
        units = [None if each is None else relation.measure.units(each) for each in edges]
        return [
            Split(
                f"{last.above}-{i:05d}",
                read_payload(relation, relation.between(above, up_to)),
                name=f"up to {edges[i + 1]}",
            )
            for i, (above, up_to) in enumerate(pairwise(units))
        ]

    def finished(self, position: dict[str, Any]) -> bool:
        return False

    def committed(self, position: dict[str, Any]) -> None:
        """Do nothing: the table keeps its rows."""

    def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _position(self, value: dict[str, Any]) -> GrowingPosition:
        return GrowingPosition.from_json(value, self._source.reads)

    def _connect(self) -> tuple[JdbcSession, JdbcRelation]:
        if self._session is None or self._relation is None:
            self._session = JdbcSession.open(self._source.login, self._source.way)
            self._relation = look_up_again(self._session, self._source)
        return self._session, self._relation

    def _reach(self, at: GrowingPosition, now_ms: int) -> SeenValue | None:
        """Look at the table, and return how far it may be read."""
        session, relation = self._connect()
        ((text,),) = session.connection.rows(
            f"SELECT MAX({relation.by_name}) FROM {relation.source}{relation.matching()}"
        )
        session.connection.rollback()  # the next look sees what was committed until then
        if text is None:
            return None
        units = relation.measure.units(text)
        if at.above is not None and units < given_units(relation.measure, "start", at.above):
            if at.read == "":
                return None  # nothing was read yet: rows behind `start` are still to come
            raise SourceGoneError(
                f"the greatest {self._source.by} of {self._source.shown} is {text}, and rows up to {at.above} were read:"
                " it was emptied, restored from a copy, or its numbers begin again",
                next="start the job over with a new checkpoint_dir, and start=… for what the target has already",
            )
        if not self._looks or self._looks[-1].units != units:
            self._looks.append(SeenValue(units, now_ms))
            if len(self._looks) > _MOST_LOOKS:
                del self._looks[1:-1:2]
        seen = reached(self._looks, now_ms, self._source.lag_ms)
        if seen is not None:
            self._looks = self._looks[self._looks.index(seen) :]
        return seen

    def _end(self, at: GrowingPosition, reach: int) -> GrowingPosition:
        source, (session, relation) = self._source, self._connect()
        measure = relation.measure
        above = None if at.above is None else given_units(measure, "start", at.above)
        if above is not None and reach <= above:
            return at
        matching = relation.matching(relation.between(above, reach))
        ((count, least),) = session.connection.rows(
            f"SELECT COUNT(*), MIN({relation.by_name}) FROM {relation.source}{matching}"
        )
        session.connection.rollback()
        if least is None:
            return at
        pieces = -(-int(count) // source.rows_per_split)
        edges = [*borders(measure.units(least), reach, pieces), reach]
        # By the width of their values, which are taken to lie evenly; what is beyond the limit is the next checkpoint's.
        edges = edges[: max(1, source.max_rows_per_checkpoint // source.rows_per_split)]
        texts = [measure.text(each) for each in edges]
        return GrowingPosition(texts[-1], tuple(texts[:-1]), read=source.reads)
