"""The operators of a job that a savepoint holds something of, and those of a job that changed since: compared, renamed, left out.

They are sources, sinks, and what keeps state. An operator is known by its id, and from its earlier self by what its
state is made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.epoch import Life, described_operators
from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.participant import DEAD_LETTER, JSON
from poundlock.errors import DefinitionError
from poundlock.operators.time_values import renamed_state
from poundlock.plan.plan import Plan
from poundlock.savepoint.metadata import Metadata, Operator, listed
from poundlock.state.decided_state import DecidedState
from poundlock.state.manifest import restricted
from poundlock.storage import Storage
from poundlock.stream.nodes import KeyedNode, WindowNode

_GROUPS = "key groups"


def operators(plan: Plan) -> dict[str, Operator]:
    """Return the operators a savepoint can hold something of, by id, in the order of the job."""
    unnamed = plan.job.unnamed
    result = {n: Operator("source", n not in unnamed, {"class": _kind(s)}) for n, s in plan.sources.items()}
    result |= {n: Operator("sink", n not in unnamed, {"class": _kind(s)}) for n, s in plan.sinks.items()}
    for node in plan.nodes:
        if isinstance(node, (WindowNode, KeyedNode)):
            own = _window(node) if isinstance(node, WindowNode) else _keyed(node)
            made_of = {**own, **plan.job.made_of.get(node.id, {})}
            made_of[_GROUPS] = plan.job.max_parallelism
            result[node.id] = Operator("stateful", node.id not in unnamed, made_of)
    return result


def operators_before(storage: Storage) -> dict[str, Operator]:
    """Return what the job of a checkpoint folder was made of at its newest start; {} where nothing is known."""
    return _operators(described_operators(storage))


def _operators(described: Mapping[str, JSON]) -> dict[str, Operator]:
    return {i: Operator(**each) for i, each in described.items()}


def refuse_changed(root: str, identity: Identity, life: Life | None, newest: Decision | None, plan: Plan) -> None:
    """Refuse to go on from what is another job's, or from state that is made of something else, as a restore does.

    Args:
        root: the checkpoint folder.
        life: its newest one; None before the first.
        newest: its newest decision; None before the first.

    Raises:
        DefinitionError: nothing of the job is what was there under another name, or an operator that is named as before
            keeps something else.
    """
    now, before = operators(plan), _operators({} if life is None else life.operators)
    name = plan.job.name
    elsewhere = f'give {name!r} another folder: Job({name!r}, checkpoint_dir="…")'
    refuse_stranger(f"the checkpoint {root}", identity.name, name, before, now, next=elsewhere)
    if newest is None or newest.checkpoint < 0:
        return
    for i, was in before.items():
        if _GROUPS in was.made_of and i in now and (what := changed(was.made_of, now[i].made_of)):
            raise DefinitionError(
                f"{i!r} cannot go on from its state: {what}",
                next="write it as it was, or begin without its state in another checkpoint_dir",
                job=plan.job.name,
            )


def _kind(part: Any) -> str:
    return type(part).__name__


def _window(node: WindowNode) -> dict[str, Any]:
    zone = "" if node.zone is None else f" by the clocks of {node.zone}"
    return {
        "keys": list(node.keys),
        "windows": node.assigner.describe() + zone,
        "time": node.column,
        "aggregates": list(node.aggregates),
    }


def _keyed(node: KeyedNode) -> dict[str, Any]:
    return {"kind": type(node).__name__.removesuffix("Node"), "keys": [list(keys) for keys in node.keys]}


def refuse_stranger(
    place: str, before: str, now: str, saved: Mapping[str, Operator], operators: Mapping[str, Operator], *, next: str
) -> None:
    """Raise DefinitionError if a job goes on under another name from what has no operator in common with it.

    Args:
        place: what it goes on from, in words.
    """
    shared = [i for i in _telling(saved) & _telling(operators) if saved[i].kind == operators[i].kind]
    if before != now and not shared:
        raise DefinitionError(
            f"{place} is of job {before!r}, and {now!r} has no operator in common with it", next=next, job=now
        )


def _telling(operators: Mapping[str, Operator]) -> Set[str]:
    """Return the ids that tell a job from others: those that a user gave; the others where there are none."""
    ids = {i: each.named for i, each in operators.items() if i != DEAD_LETTER}
    return {i for i, named in ids.items() if named} or ids.keys()


@dataclass(frozen=True, slots=True)
class WaysOut:
    """What to do about a savepoint that does not fit: where the job has no such operator, and where its state is made of something else."""

    missing: str = (
        "give the operator its name again; or say --rename-operator OLD=NEW of one with state; or say -n"
        " (--allow-non-restored-state) to leave its state behind"
    )
    changed: str = "write it as it was, or give the new one another name and begin without its state"


USUAL_WAYS = WaysOut()


def compare(
    root: str,
    saved: Mapping[str, Operator],
    operators: Mapping[str, Operator],
    *,
    allow_non_restored: bool,
    ways: WaysOut = USUAL_WAYS,
) -> list[str]:
    """Return the ids of what is not restored; raise DefinitionError naming what cannot be restored."""
    dropped = [i for i, o in saved.items() if operators.get(i, Operator("")).kind != o.kind]
    if dropped and not allow_non_restored:
        names = ", ".join(f"{saved[i].kind} {i!r}" for i in dropped)
        kinds = {saved[i].kind for i in dropped}
        new = ", ".join(f"{o.kind} {i!r}" for i, o in operators.items() if o.kind in kinds and i not in saved)
        raise DefinitionError(
            f"the savepoint {root} has state of {names}, and the job has no such operator{new and f', but {new}'}"
            f"{_difference(dropped, saved, operators)}",
            next=ways.missing,
        )
    for i, was in saved.items():
        if i not in dropped and (what := changed(was.made_of, operators[i].made_of)):
            raise DefinitionError(
                f"{was.kind} {i!r} cannot be restored: {what}",
                next=ways.changed,
            )
    return dropped


def _difference(dropped: Sequence[str], saved: Mapping[str, Operator], operators: Mapping[str, Operator]) -> str:
    """Say what is otherwise with the one operator that may be the one that is missing; "" where there are several."""
    if len(dropped) > 1:
        return ""
    was = saved[dropped[0]]
    new = [each for i, each in operators.items() if i not in saved and each.kind == was.kind]
    near = [each for each in new if each.made_of.get("kind") == was.made_of.get("kind")]
    what = changed(was.made_of, near[0].made_of) if len(near) == 1 else None
    return "" if what is None else f": {what}"


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Say what of an operator's state is made of something else; None if nothing is known to be."""
    for name, was in before.items():
        if name in now and now[name] != was:
            many = name.endswith("s") and not name.endswith("ss")
            return f"its {name} {'were' if many else 'was'} {listed(was)} and {'are' if many else 'is'} {listed(now[name])}"
    return None


def without_operators(state: DecidedState | None, dropped: Sequence[str]) -> DecidedState | None:
    """Return the keyed state of a savepoint without that of some operators: merges drop their rows."""
    if state is None:
        return None
    return state.each(lambda manifest: restricted(manifest, set(manifest.operators) - {*dropped}))


def parse_renamed(texts: Sequence[str]) -> dict[str, str]:
    """Return what "old=new" texts say. Raises DefinitionError."""
    renamed: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not (old and equals and new) or old == new:
            raise DefinitionError(
                f"--rename-operator {text} is not OLD=NEW", next="write --rename-operator counts=sums"
            )
        if old in renamed or new in renamed.values():
            raise DefinitionError(f"--rename-operator {text}: {old} or {new} is there twice", next="give each id once")
        renamed[old] = new
    return renamed


def renamed_operators(root: str, metadata: Metadata, renamed: Mapping[str, str]) -> Metadata:
    """Return a savepoint in which operators with state have other ids, all at once: two can change places.

    Raises:
        DefinitionError: there is no such operator with state, or a new id is another one's.
    """
    operators = metadata.operators
    for old, new in renamed.items():
        if old not in operators or operators[old].kind != "stateful":
            there = ", ".join(id for id, each in operators.items() if each.kind == "stateful")
            raise DefinitionError(f"{root} has no operator {old!r} with state", next=f"use one of {there or 'none'}")
        if new in operators and new not in renamed:
            raise DefinitionError(
                f"{root} has an operator {new!r} already", next="give another id, or rename or drop that one too"
            )
    decision = metadata.decision
    state, watermarks = decision.state, decision.watermarks
    if state is not None:
        # The files know operators by number.
        state = state.each(lambda m: structs.replace(m, operators=_named(m.operators, renamed)))
    if renamed and watermarks is not None:
        watermarks = structs.replace(watermarks, state=renamed_state(watermarks.state, renamed))
    return replace(
        metadata, operators=_named(operators, renamed), decision=replace(decision, state=state, watermarks=watermarks)
    )


def _named(values: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    return {renamed.get(id, id): each for id, each in values.items()}
