"""All functions and operators by their names. What only the evaluation of a tree can do is in expressions/evaluation.py: CASE, CAST."""

from __future__ import annotations

from collections.abc import Mapping

from poundlock.sql.functions import (
    collections,
    encodings,
    internal,
    json,
    numbers,
    patterns,
    printf,
    texts,
    time_fields,
    times,
)
from poundlock.sql.functions.function import SqlFunction
from poundlock.sql.functions.operators import arithmetic, comparison, conditional, intervals, logic, matching, nested

_MODULES = (
    arithmetic.FUNCTIONS,
    collections.FUNCTIONS,
    comparison.FUNCTIONS,
    conditional.FUNCTIONS,
    encodings.FUNCTIONS,
    internal.FUNCTIONS,
    intervals.FUNCTIONS,
    json.FUNCTIONS,
    logic.FUNCTIONS,
    matching.FUNCTIONS,
    nested.FUNCTIONS,
    numbers.FUNCTIONS,
    patterns.FUNCTIONS,
    printf.FUNCTIONS,
    texts.FUNCTIONS,
    time_fields.FUNCTIONS,
    times.FUNCTIONS,
)
FUNCTIONS: Mapping[str, SqlFunction] = {function.name: function for each in _MODULES for function in each}
"""By name in capitals. A name that is no word cannot be called in a script: it is that of an operator."""
