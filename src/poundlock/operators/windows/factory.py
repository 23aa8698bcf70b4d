"""The choice of a window operator: the general one, or one for a common case.

Whichever is taken, the results are those of the general one; only the cost differs.
"""

from __future__ import annotations

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import CHUNK_ROWS
from poundlock.operators.windows.aligned import AlignedWindowOperator, slice_of
from poundlock.operators.windows.base import WindowOperatorBase
from poundlock.operators.windows.counted import CountWindowOperator
from poundlock.operators.windows.general import WindowOperator
from poundlock.operators.windows.sessions import SessionWindowOperator
from poundlock.operators.windows.spec import WindowSpec
from poundlock.stream.windows.assigners import AlignedWindows, MergingWindowAssigner
from poundlock.stream.windows.builtin_assigners import (
    CountTumblingWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
)
from poundlock.stream.windows.builtin_triggers import EventTimeTrigger, ProcessingTimeTrigger


def window_operator(spec: WindowSpec, *, chunk_rows: int = CHUNK_ROWS, general: bool = False) -> KeyedOperator:
    """Return an operator for windows.

    Args:
        general: whether to take the general operator whatever the windows are.

    Raises:
        DefinitionError: the trigger cannot be used with windows that merge.
    """
    trigger = spec.trigger or spec.assigner.default_trigger()
    if isinstance(spec.assigner, MergingWindowAssigner) and not trigger.can_merge():
        raise DefinitionError(
            f"{type(trigger).__name__} cannot be used with {spec.assigner.describe()}: it does not say what to do when windows merge",
            next="use a trigger whose can_merge() is true",
        )
    kind = WindowOperator if general else _kind(spec)
    return kind(spec, chunk_rows=chunk_rows)


def _kind(spec: WindowSpec) -> type[WindowOperatorBase]:
    if spec.evictor is not None or spec.assigner.default_evictor() is not None:
        return WindowOperator
    assigner = spec.assigner
    if isinstance(assigner, CountTumblingWindows):
        return CountWindowOperator if spec.trigger in (None, assigner.default_trigger()) else WindowOperator
    end = EventTimeTrigger if assigner.is_event_time() else ProcessingTimeTrigger
    if type(spec.trigger or assigner.default_trigger()) is not end:
        return WindowOperator
    if isinstance(assigner, AlignedWindows) and slice_of(assigner) is not None:
        return AlignedWindowOperator
    if type(assigner) in (EventTimeSessionWindows, ProcessingTimeSessionWindows):
        return SessionWindowOperator
    return WindowOperator
