"""`checkpointing_mode="AT_LEAST_ONCE"`: which jobs can show rows without waiting for a decision, and what is refused of the others."""

from __future__ import annotations

from poundlock.checkpoint.participant import Kind
from poundlock.connectors.print_sink import PrintSink
from poundlock.errors import DefinitionError
from poundlock.plan.outline import state_spaces
from poundlock.plan.plan import DEAD_LETTER, Plan
from poundlock.stream.nodes import WatermarkNode, walk
from poundlock.values import duration, format_duration

AT_LEAST_ONCE = "AT_LEAST_ONCE"
_INSTEAD = 'or leave checkpointing_mode="AT_LEAST_ONCE" out'


def is_at_least_once(plan: Plan) -> bool:
    """Return whether a job's checkpoints are made of rounds."""
    return plan.job.checkpointing_mode == AT_LEAST_ONCE


def repeated_of(plan: Plan) -> str:
    """Return what a crash may repeat of a job whose checkpoints are made of rounds."""
    return f"what was written within {format_duration(duration(plan.job.checkpoint_interval))} before it"


def check_mode(plan: Plan) -> None:
    """Raise DefinitionError if a job asks for the mode, and a part of it would gain nothing by it or cannot work with it."""
    if not is_at_least_once(plan):
        return
    job = plan.job
    for name, sink in plan.sinks.items():
        if name == DEAD_LETTER:  # its files may wait for the decision
            continue
        if sink.kind not in (Kind.APPEND, Kind.FORGETFUL) or isinstance(sink, PrintSink):
            raise _refused(
                plan,
                f'sink {name!r} ({sink.kind.value}) shows nothing before the decision, and checkpointing_mode="AT_LEAST_ONCE" is for those that do',
                'give the sink guarantee="at-least-once", as KafkaSink and PostgresSink take it',
            )
    if spaces := state_spaces(plan):
        keeps = ", ".join(name for names in spaces.values() for name in names)
        raise _refused(plan, f"{keeps} keeps state, and state is written with a decision", "take that step out")
    if any(isinstance(node, WatermarkNode) for node in walk(list(job.graph()))):
        raise _refused(
            plan, "event time moves on with a decision, and the job has watermarks", "leave the watermarks out"
        )
    if plan.has_streams:
        raise _refused(plan, "what Spark reads is staged before a task reads it", "read it without a SparkSource")
    if plan.bounded:
        raise _refused(plan, "every source ends, so that nobody waits for single rows", "read on without an end")
    if job.autoscaler is not None:
        raise _refused(plan, "an autoscaler changes the parallelism between two checkpoints", "leave autoscaler out")
    interval = duration(job.checkpoint_interval)
    if not interval:
        raise _refused(plan, 'checkpoint_interval is "0 s", so that each round would be decided', "give it 1 s or more")
    if job.checkpoint_timeout and duration(job.checkpoint_timeout) <= interval:
        raise _refused(
            plan,
            f"a checkpoint lasts its interval, {format_duration(interval)}, and checkpoint_timeout is not longer",
            "make checkpoint_timeout longer",
        )


def _refused(plan: Plan, what: str, instead: str) -> DefinitionError:
    return DefinitionError(what, next=f"{instead}, {_INSTEAD}", job=plan.job.name)
