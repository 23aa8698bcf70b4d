"""Expressions over columns: every part of a tree is computed for all rows of a batch at once.

A branch of CASE, COALESCE or IF, and the right side of AND and OR, is not computed for rows that do not take it where it could fail. What is
of constants only is computed once and repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import TerminalError
from poundlock.formats.arrays import indices_of
from poundlock.sql.coercion import EXACT, TEXTS
from poundlock.sql.expressions.constants import column_of_literal
from poundlock.sql.expressions.tree import ColumnRef, Expression, Literal, SqlCall, UserCall, columns_of
from poundlock.sql.functions.casts import cast
from poundlock.sql.functions.function import Evaluation, EvaluationError
from poundlock.sql.functions.kernels.columns import placed, repeated, trues, truths, valid_flags
from poundlock.sql.functions.operators.comparison import equal
from poundlock.sql.functions.table import FUNCTIONS

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """What expressions are computed in.

    Args:
        zone: of the session.
        now_us: the time of the checkpoint, microseconds since 1970.
        watermark_ms: that the rows are judged by, ms since 1970; None before the first one.
    """

    zone: tzinfo
    now_us: int = 0
    watermark_ms: int | None = None


@dataclass(frozen=True)
class Program:
    """Named expressions over the rows of a batch for which a condition is true; picklable.

    Args:
        outputs: name and expression of each column of the result.
        condition: of type BOOLEAN; None: all rows.
    """

    outputs: tuple[tuple[str, Expression], ...]
    condition: Expression | None = None
    _constants: _Constants = field(default_factory=lambda: _Constants(), compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return Program, (self.outputs, self.condition)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return pa.schema([pa.field(name, each.type.arrow) for name, each in self.outputs])

    def run(self, batch: pa.RecordBatch, context: EvaluationContext) -> pa.RecordBatch:
        """Return the result for a batch.

        Raises:
            TerminalError: a value makes the job fail.
        """
        if self.condition is not None:
            taken = trues(_Rows(batch, context, self._constants).of(self.condition))
            if not taken.all():
                batch = batch.filter(truths(taken))
        rows = _Rows(batch, context, self._constants)
        return pa.RecordBatch.from_arrays([rows.of(each) for _, each in self.outputs], schema=self.schema)


def evaluate(expression: Expression, batch: pa.RecordBatch, context: EvaluationContext) -> pa.Array:
    """Return the values of an expression for the rows of a batch.

    Raises:
        TerminalError: a value makes the job fail.
    """
    return _Rows(batch, context, _Constants()).of(expression)


@dataclass
class _Constants:
    """The values of what is of constants only, for as long as the tree is there whose parts they are of."""

    values: dict[int, pa.Array | None] = field(default_factory=dict)
    kept: list[Expression] = field(default_factory=list)
    """The parts themselves: so long no other part has the number of one."""

    def of(self, expression: Expression, context: EvaluationContext) -> pa.Array | None:
        """Return the value as a column of one row, None of what is not constant, or fails: for no row it need be computed."""
        if id(expression) not in self.values:
            self.kept.append(expression)
            self.values[id(expression)] = self._computed(expression, context)
        return self.values[id(expression)]

    def _computed(self, expression: Expression, context: EvaluationContext) -> pa.Array | None:
        if isinstance(expression, Literal):
            return column_of_literal(expression)
        if not is_constant(expression):
            return None
        empty = pa.RecordBatch.from_arrays([pa.nulls(1)], ["nothing"])
        try:
            return _Rows(empty, context, self).computed(expression)
        except TerminalError:
            return None


@dataclass
class _Rows:
    """Some rows, and what was computed for them."""

    batch: pa.RecordBatch
    context: EvaluationContext
    constants: _Constants
    known: dict[int, pa.Array] = field(default_factory=dict)

    def of(self, expression: Expression) -> pa.Array:
        """Return the values of an expression."""
        if isinstance(expression, ColumnRef):
            return self.batch.column(expression.name)
        rows = self.batch.num_rows
        if not rows:
            return pa.nulls(0, expression.type.arrow)
        constant = self.constants.of(expression, self.context)
        if constant is not None:
            return repeated(constant, rows)
        if id(expression) not in self.known:
            self.known[id(expression)] = self.computed(expression)
        return self.known[id(expression)]

    def computed(self, expression: Expression) -> pa.Array:
        """Compute a call."""
        assert isinstance(expression, SqlCall)
        special = _SPECIAL.get(expression.function)
        made = special(self, expression) if special is not None else self._called(expression)
        arrow = expression.type.arrow
        return made if made.type == arrow else pc.cast(made, arrow)

    def _called(self, call: SqlCall) -> pa.Array:
        columns = [self.of(argument) for argument in call.arguments]
        if isinstance(call, UserCall):
            return call.user.run(columns, [each.type for each in call.arguments], self.batch.num_rows)
        context = self.context
        evaluation = Evaluation(
            self.batch.num_rows, context.zone, context.now_us, call.type, call.options, context.watermark_ms
        )
        try:
            return FUNCTIONS[call.function].run(columns, evaluation)
        except pa.ArrowCapacityError:
            raise EvaluationError(
                f"{call.function} gives more than 2 GB for {self.batch.num_rows} rows",
                next="give it a smaller length, or leave out the rows that ask for so much",
            ) from None

    def at(self, places: Places, *expressions: Expression) -> _Rows:
        """Return some of the rows, with the columns that expressions are of."""
        if len(places) == self.batch.num_rows:
            return self
        names = list(dict.fromkeys(name for each in expressions for name in columns_of(each)))
        if not names:
            return _Rows(pa.RecordBatch.from_arrays([pa.nulls(len(places))], ["nothing"]), self.context, self.constants)
        return _Rows(self.batch.select(names).take(indices_of(places)), self.context, self.constants)


# --- what is not computed for all rows ----------------------------------------------------------------------------------


def _case(rows: _Rows, call: SqlCall) -> pa.Array:
    """Compute CASE: condition, value, condition, value …, and the value of all other rows."""
    *branches, otherwise = call.arguments
    pairs = list(zip(branches[::2], branches[1::2], strict=True))
    if all(map(is_total, (*branches, otherwise))):
        made = rows.of(otherwise)
        for condition, value in reversed(pairs):
            made = pc.if_else(truths(trues(rows.of(condition))), rows.of(value), made)
        return made
    left, parts = np.arange(rows.batch.num_rows), []
    for condition, value in pairs:
        taken = trues(rows.at(left, condition).of(condition))
        parts.append((left[taken], rows.at(left[taken], value).of(value)))
        left = left[~taken]
    parts.append((left, rows.at(left, otherwise).of(otherwise)))
    return placed(parts, rows.batch.num_rows, call.type.arrow)


def _if(rows: _Rows, call: SqlCall) -> pa.Array:
    return _case(rows, call)


def _coalesce(rows: _Rows, call: SqlCall) -> pa.Array:
    if all(map(is_total, call.arguments)):
        return rows._called(call)
    left, parts = np.arange(rows.batch.num_rows), []
    for argument in call.arguments:
        values = rows.at(left, argument).of(argument)
        there = valid_flags(values)
        parts.append((left[there], values.filter(truths(there))))
        left = left[~there]
    return placed(parts, rows.batch.num_rows, call.type.arrow)


def _and(rows: _Rows, call: SqlCall) -> pa.Array:
    return _short_circuit(rows, call, decides=False)


def _or(rows: _Rows, call: SqlCall) -> pa.Array:
    return _short_circuit(rows, call, decides=True)


def _short_circuit(rows: _Rows, call: SqlCall, *, decides: bool) -> pa.Array:
    """Compute AND or OR: the right side only where the left one does not decide."""
    left, right = call.arguments
    first = rows.of(left)
    if is_total(right):
        second = rows.of(right)
    else:
        open_ = np.flatnonzero(~trues(first if decides else pc.invert(first)))
        second = placed([(open_, rows.at(open_, right).of(right))], rows.batch.num_rows, pa.bool_())
    return (pc.or_kleene if decides else pc.and_kleene)(first, second)


def _in(rows: _Rows, call: SqlCall) -> pa.Array:
    """Compute IN: the first argument in the others, which are of its type; NULL where only a NULL could be it."""
    sought, *listed = call.arguments
    values = rows.of(sought)
    constants = [rows.constants.of(each, rows.context) for each in listed]
    if not pa.types.is_nested(values.type) and sought.type.root not in EXACT:
        plain = [each for each in constants if each is not None]
        if len(plain) == len(listed):
            known = [each for each in plain if not each.null_count]
            among = pa.concat_arrays(known) if known else pa.nulls(0, values.type)
            made = truths(trues(pc.is_in(values, value_set=among, skip_nulls=True)))
            unknown = pc.is_null(values)
            if len(known) < len(plain):
                unknown = pc.or_(unknown, pc.invert(made))
            return pc.if_else(unknown, pa.nulls(len(values), pa.bool_()), made)
    made = equal(values, rows.of(listed[0]))
    for each in listed[1:]:
        made = pc.or_kleene(made, equal(values, rows.of(each)))
    return made


def _cast(rows: _Rows, call: SqlCall) -> pa.Array:
    (argument,) = call.arguments
    is_try = call.function == "TRY_CAST"
    return cast(rows.of(argument), argument.type, call.type, rows.context.zone, is_try=is_try)


_SPECIAL: Mapping[str, Callable[[_Rows, SqlCall], pa.Array]] = {
    "CASE": _case, "IF": _if, "COALESCE": _coalesce, "IFNULL": _coalesce, "AND": _and, "OR": _or, "IN": _in,
    "CAST": _cast, "TRY_CAST": _cast,
}  # fmt: skip
_TOTAL_ALONE = ("CASE", "IN", "TRY_CAST")


def is_total(expression: Expression) -> bool:
    """Return whether an expression has a value whatever the values of the columns are."""
    if not isinstance(expression, SqlCall):
        return True
    if expression.function == "CAST":
        own = expression.arguments[0].type.root not in (*TEXTS, "ROW", "ARRAY", "MAP") or expression.type.root in TEXTS
    elif isinstance(expression, UserCall):
        return False
    else:
        own = expression.function in _TOTAL_ALONE or FUNCTIONS[expression.function].is_total
    return own and all(map(is_total, expression.arguments))


def is_constant(expression: Expression) -> bool:
    """Return whether an expression has the same value for all rows of all batches."""
    if isinstance(expression, ColumnRef):
        return False
    if isinstance(expression, Literal):
        return True
    if isinstance(expression, UserCall):
        own = expression.user.is_deterministic
    else:
        function = FUNCTIONS.get(expression.function)
        own = function is None or function.is_deterministic
    return own and all(map(is_constant, expression.arguments))
