"""The operators of a job that a savepoint holds something of: sources, sinks, and what keeps state, by id.

An operator is told from another by its id, and from its earlier self by what its state is made of.
"""

from __future__ import annotations

from typing import Any

from poundlock.checkpoint.epoch import described_operators
from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.errors import DefinitionError
from poundlock.plan.plan import Plan
from poundlock.savepoint.metadata import Operator
from poundlock.savepoint.operator_changes import changed, refuse_stranger
from poundlock.storage import Storage
from poundlock.stream.nodes import KeyedNode, WindowNode

_GROUPS = "key groups"


def operators(plan: Plan) -> dict[str, Operator]:
    """Return the operators a savepoint can hold something of, by id, in the order of the job.

    Args:
        plan: the job's.
    """
    unnamed = plan.job.unnamed
    result = {n: Operator("source", n not in unnamed, {"class": _kind(s)}) for n, s in plan.sources.items()}
    result |= {n: Operator("sink", n not in unnamed, {"class": _kind(s)}) for n, s in plan.sinks.items()}
    for node in plan.nodes:
        if isinstance(node, (WindowNode, KeyedNode)):
            made_of = _window(node) if isinstance(node, WindowNode) else _keyed(node)
            made_of[_GROUPS] = plan.job.max_parallelism
            result[node.id] = Operator("stateful", node.id not in unnamed, made_of)
    return result


def operators_before(storage: Storage) -> dict[str, Operator]:
    """Return what the job of a checkpoint folder was made of at its newest start; {} where nothing is known."""
    return {i: Operator(**each) for i, each in described_operators(storage).items()}


def refuse_changed(storage: Storage, identity: Identity, plan: Plan) -> None:
    """Refuse to go on from what is another job's, or from state that is made of something else, as a restore does.

    Args:
        storage: the job's checkpoint folder.
        identity: whose it is.
        plan: of the job that is to go on.

    Raises:
        DefinitionError: nothing of the job is what was there under another name, or an operator that is named as before
            keeps something else.
    """
    now, before = operators(plan), operators_before(storage)
    name = plan.job.name
    refuse_stranger(
        f"the checkpoint {storage.root}",
        identity.name,
        name,
        before,
        now,
        next=f'give {name!r} another folder: Job({name!r}, checkpoint_dir="…")',
    )
    newest = Ledger(storage).newest()
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
    return {
        "keys": list(node.keys),
        "windows": node.assigner.describe(),
        "time": node.column,
        "aggregates": list(node.aggregates),
    }


def _keyed(node: KeyedNode) -> dict[str, Any]:
    return {"kind": type(node).__name__.removesuffix("Node"), "keys": [list(keys) for keys in node.keys]}
