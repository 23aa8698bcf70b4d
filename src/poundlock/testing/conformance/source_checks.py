"""What is asked of a split-planned source, check by check."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pyarrow as pa

from poundlock.connectors.base import Split, SplitSource, replay_of
from poundlock.errors import PoundlockError
from poundlock.spark.pickled_functions import shipped
from poundlock.testing.conformance.report import Broken, Checks, Skipped
from poundlock.testing.conformance.source_rig import Read, SourceRig, Way, plan

CHECKS = Checks[SourceRig]()


@CHECKS.add("pickling", "a source travels to the tasks pickled; its rows have the columns of schema()")
def travels(rig: SourceRig) -> None:
    if not isinstance(rig.source, SplitSource):
        raise Broken(f"{type(rig.source).__name__} lacks something of poundlock.connectors.base.SplitSource")
    again = pickle.loads(rig.shipped)
    schema = again.schema()
    if not isinstance(schema, pa.Schema) or schema != rig.source.schema():
        raise Broken(f"its schema came back as {schema!r}")
    with rig.walked(more=False) as (_, way):
        shipped(rig.source)
    for row in way.rows:
        if list(row) != list(schema.names):
            raise Broken(f"a row has the columns {list(row)} and the schema {schema.names}")


@CHECKS.add("reads-all", "from the initial position to the latest, checkpoint by checkpoint, every row comes once")
def reads_all(rig: SourceRig) -> None:
    way = rig.way()
    rig.expect(way.rows, rig.expected, f"over {len(way.reads)} checkpoints")


@CHECKS.add("positions", "positions are JSON, no two of a way are alike, and describe() makes a line of each")
def positions(rig: SourceRig) -> None:
    with rig.walked() as (_, way):
        texts = [json.dumps(position, sort_keys=True) for position in way.positions]
        if len(set(texts)) != len(texts):
            raise Broken(f"a position came twice: {texts}")
        for position in way.positions:
            text = rig.source.describe(position)
            if not isinstance(text, str) or not text or "\n" in text:
                raise Broken(f"describe({position!r}) is not a line of text: {text!r}")


@CHECKS.add("monotone", "latest() never goes back; it is `start` only where nothing is new, and then there is no work")
def monotone(rig: SourceRig) -> None:
    with rig.walked() as (enumerator, way):
        last = way.positions[-1]
        if (end := rig.step(enumerator, last, wait=False)) != last:
            raise Broken(f"nothing is new behind {last!r}, and latest() says {end!r}")
        for at in way.positions[:-1]:
            end = rig.step(enumerator, at, wait=False)
            if end == at:
                raise Broken(f"there are rows behind {at!r}, and latest() says that there is nothing")
            if end in way.positions[: way.positions.index(at)]:
                raise Broken(f"latest({at!r}) goes back to {end!r}")
        if list(enumerator.splits(last, last)):
            raise Broken(f"splits() gives work between {last!r} and itself")


@CHECKS.add("ends", "finished() is true of a bounded source at its end, also after a restart, and nowhere else")
def ends(rig: SourceRig) -> None:
    with rig.walked(more=not rig.source.bounded) as (enumerator, way):
        first, last = enumerator.finished(way.positions[0]), enumerator.finished(way.positions[-1])
    if rig.source.bounded:
        if first:
            raise Broken(f"finished() is true of {way.positions[0]!r}, and there are rows behind it")
        with rig.enumerator() as enumerator:
            again = enumerator.finished(way.positions[-1])
        if not last or not again:
            raise Broken(f"it is bounded and was read to {way.positions[-1]!r}, and finished() says it goes on")
    elif last and not _reads_once(rig):
        raise Broken("it is not bounded, and finished() says that nothing can come any more")


@CHECKS.add(
    "splits-pure", "splits() is a function of two positions and the workspace; ids are unique, payloads are JSON"
)
def splits_pure(rig: SourceRig) -> None:
    with rig.walked() as (enumerator, way):
        plans = [_checked(enumerator.splits(a, b)) for a, b in _steps(way)]
        if [_checked(enumerator.splits(a, b)) for a, b in _steps(way)] != plans:
            raise Broken("splits() gave other splits when it was asked again")
    with rig.enumerator() as enumerator:
        enumerator.initial()
        if [_checked(enumerator.splits(a, b)) for a, b in _steps(way)] != plans:
            raise Broken("splits() gave other splits after a restart on the same workspace")
    for (a, b), kept in zip(_steps(way), plans, strict=True):
        if _checked(rig.children.call(plan, rig.shipped, rig.workspace, a, b)) != kept:
            raise Broken(f"splits({a!r}, {b!r}) gave other splits in another process")


@CHECKS.add("replay", "the same split gives the same rows in the same order, and the same rejects")
def replays(rig: SourceRig) -> None:
    with rig.walked() as (enumerator, way):
        for (a, b), kept in zip(_steps(way), way.reads, strict=True):
            again = rig.read(enumerator.splits(a, b))
            if again.rows != kept.rows:
                raise Broken(
                    f"the splits from {a!r} to {b!r} gave other rows, or the same in another order, when read again"
                )
            if len(again.rejects) != len(kept.rejects):
                raise Broken(
                    f"{len(kept.rejects)} records were rejected at first and {len(again.rejects)} when read again"
                )


@CHECKS.add(
    "replay-promise",
    "what `replay` declares is so: a range read twice by one reader, and by another behind a restart, gives the same rows; "
    'one that is "exact" gives them, or an error, even when somebody changed them',
)
def keeps_promise(rig: SourceRig) -> None:
    promise = replay_of(rig.source)
    if promise.kind in ("unknown", "received-once"):
        raise Skipped(f"it promises nothing of a second reading: {promise.reason}")
    if not promise.reason or "\n" in promise.reason:
        raise Broken(f"its promise needs a reason of one line, and has {promise.reason!r}")
    way = rig.way()
    for (a, b), kept in zip(_steps(way), way.reads, strict=True):
        with rig.enumerator() as enumerator:
            enumerator.initial()
            _compare(rig.read_twice(enumerator.splits(a, b)), kept, a, b, f"it declares {promise.kind!r}")
    if promise.kind == "exact" and rig.subject.change is not None:
        _keeps_after_change(rig, way)


def _keeps_after_change(rig: SourceRig, way: Way) -> None:
    """Plan and read each range again behind the change that the author makes; the source may refuse, and not differ."""
    assert rig.subject.change is not None
    rig.subject.change(rig.source)
    for (a, b), kept in zip(_steps(way), way.reads, strict=True):
        try:
            with rig.enumerator() as enumerator:
                enumerator.initial()
                splits = enumerator.splits(a, b)
        except PoundlockError:
            continue
        result = rig.read_twice(splits)
        if not isinstance(result, str):
            _compare(result, kept, a, b, 'rows were changed, and it declares "exact"')


def _compare(result: tuple[Read, Read] | str, kept: Read, start: Any, end: Any, when: str) -> None:
    if isinstance(result, str):
        raise Broken(f"{when}, and refuses to read from {start!r} to {end!r} again: {result}")
    for number, again in enumerate(result, 2):
        if again.rows != kept.rows or len(again.rejects) != len(kept.rejects):
            raise Broken(f"{when}, and reading number {number} from {start!r} to {end!r} gave other rows")


def _reads_once(rig: SourceRig) -> bool:
    return replay_of(rig.source).kind == "received-once"


@CHECKS.add("restart", "from any position a new enumerator gives just the rest")
def restarts(rig: SourceRig) -> None:
    way = rig.way()
    if len(way.reads) < 2:
        raise Broken(
            "all rows came in one checkpoint, so a restart between two cannot be tried: "
            "make the source with a low limit per checkpoint, or give `more`"
        )
    for i, position in enumerate(way.positions):
        with rig.enumerator() as enumerator:
            enumerator.initial()
            rest = rig.walk(enumerator, position, more=False)
        rig.expect(rest.rows, way.after(i), f"after a restart from {position!r}")


@CHECKS.add("ranges", "a range gives the rows of the smaller ranges it is made of")
def ranges(rig: SourceRig) -> None:
    with rig.walked() as (enumerator, way):
        for i in range(len(way.positions) - 1):
            a, b = way.positions[i], way.positions[-1]
            rows_read = rig.read(enumerator.splits(a, b))
            rig.expect(rows_read.all, way.after(i), f"read at once from {a!r} to {b!r}")


@CHECKS.add(
    "committed",
    "committed() may get the same position again, also after a restart, and takes nothing away that is still to be read",
)
def commits_repeated(rig: SourceRig) -> None:
    with rig.enumerator() as enumerator:
        at = json.loads(json.dumps(enumerator.initial()))
        enumerator.committed(at)
        way = Way([at])
        while (end := rig.step(enumerator, at, wait=len(way.rows) < len(rig.expected))) != at:
            way.reads.append(rig.read(enumerator.splits(at, end)))
            way.positions.append(end)
            for _ in range(2):
                enumerator.committed(end)
            at = end
            with rig.enumerator() if not _reads_once(rig) else nullcontext(enumerator) as fresh:
                fresh.initial()
                fresh.committed(end)
        rig.expect(way.rows, rig.expected, "while it learnt of each checkpoint three times")


@CHECKS.add("rejects", "a record that cannot be decoded goes to context.reject with a reason, its bytes and its place")
def rejects(rig: SourceRig) -> None:
    way = rig.way()
    rejected = [reject for one in way.reads for reject in one.rejects]
    if len(rejected) != rig.subject.bad:
        reasons = "; ".join(reject.reason for reject in rejected[:3])
        raise Broken(
            f"{rig.subject.bad} records are bad and {len(rejected)} were rejected{': ' + reasons if reasons else ''}"
        )
    for reject in rejected:
        if not reject.reason or not isinstance(reject.value, bytes) or not reject.where:
            raise Broken(f"a rejected record needs a reason, its value as bytes and its place: {reject!r}")
    if not rig.subject.bad:
        raise Skipped("no bad records were given")


@CHECKS.add("forms", "a reader may be asked for columns or for records, and gives the same rows")
def forms(rig: SourceRig) -> None:
    with rig.walked() as (enumerator, way):
        for a, b in _steps(way):
            one, two = (rig.read(enumerator.splits(a, b), want) for want in ("batch", "records"))
            rig.expect(two.all, one.all, "asked for records instead of columns")


def _steps(way: Way) -> list[tuple[Any, Any]]:
    return list(zip(way.positions, way.positions[1:], strict=False))


def _checked(splits: Sequence[Split]) -> list[tuple[str, str, int]]:
    ids = [split.id for split in splits]
    if len(set(ids)) != len(ids):
        raise Broken(f"two splits have the same id: {ids}")
    names = [split.name or split.id for split in splits]
    if len(set(names)) != len(names):
        raise Broken(f"two splits have the same name: {names}")
    try:
        return [
            (split.id, json.dumps(split.payload, sort_keys=True, allow_nan=False), split.weight) for split in splits
        ]
    except (TypeError, ValueError) as error:
        raise Broken(f"the payload of a split is not JSON: {error}") from None
