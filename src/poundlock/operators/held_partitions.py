"""Watermark alignment (Flink's FLIP-182 and FLIP-217): what must not be read on until the slowest of its group has caught up.

Pure arithmetic over the state behind a checkpoint; whoever plans the next one leaves what is held out of its ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from poundlock.operators.time_graph import TimeGraph, TimeNode
from poundlock.operators.time_values import MAX, MIN, UNKNOWN, SourceTime, TimeState, known
from poundlock.values import span_ms


@dataclass(frozen=True, slots=True)
class Held:
    """What of a source has to wait.

    Args:
        everything: whether nothing of it is to be read.
        partitions: those that are not to be read; of a source whose splits are read to their end there are none.
        ahead_ms: how much further the farthest of them is than it may be.
    """

    everything: bool = False
    partitions: frozenset[str] = frozenset()
    ahead_ms: int = 0


NOTHING_HELD = Held()


def allowed(watermarks: Iterable[int], drift_ms: int) -> int:
    """Return the greatest watermark that a member of a group may have, given those of its active members."""
    least = min(watermarks, default=MAX)
    return MAX if least > MAX - drift_ms else MIN if least == MIN else least + drift_ms


def held(graph: TimeGraph, state: TimeState) -> dict[tuple[str, str], Held]:
    """Return what has to wait, by assigner and source; those of which nothing has to are left out.

    A source that is idle or has ended holds nobody back. A group in which somebody has no watermark yet lets nobody run who
    has one: as in Flink, all wait for the first rows of the last.
    """
    groups: dict[str, list[int]] = {}
    members: list[tuple[TimeNode, str, SourceTime]] = []
    for node in graph.assigners:
        if node.strategy is None or node.strategy.alignment is None:
            continue
        for name in node.sources:
            source = state.sources.get(node.id, {}).get(name, SourceTime())
            members.append((node, name, source))
            if not source.idle:
                groups.setdefault(node.strategy.alignment.group, []).append(known(source.watermark))
    limits: dict[tuple[str, str], Held] = {}
    for node, name, source in members:
        assert node.strategy is not None
        assert node.strategy.alignment is not None
        limit = allowed(groups.get(node.strategy.alignment.group, ()), span_ms(node.strategy.alignment.max_drift))
        if (each := _held(source, limit)) != NOTHING_HELD:
            limits[node.id, name] = each
    return limits


def held_of_source(graph: TimeGraph, state: TimeState) -> Mapping[str, Held]:
    """Return what has to wait, by source, for the enumerators: a source that goes to several assigners waits if one has it wait."""
    together: dict[str, Held] = {}
    for (_, name), each in held(graph, state).items():
        if name != UNKNOWN:
            other = together.get(name, NOTHING_HELD)
            together[name] = Held(
                each.everything or other.everything,
                each.partitions | other.partitions,
                max(each.ahead_ms, other.ahead_ms),
            )
    return together


def _held(source: SourceTime, limit: int) -> Held:
    partitions = {
        name: ahead for name, each in source.partitions.items() if (ahead := _ahead(known(each.watermark), limit))
    }
    ahead = _ahead(known(source.watermark), limit)
    if not ahead and not partitions:
        return NOTHING_HELD
    return Held(bool(ahead), frozenset(partitions), max(ahead, *partitions.values()) if partitions else ahead)


def _ahead(watermark: int, limit: int) -> int:
    if watermark in (MIN, MAX) or watermark <= limit:
        return 0
    return watermark - limit if limit != MIN else MAX
