"""Functions that no script can call: what the analysis puts into relations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import column_of, indices_of, numbers_in, ranks_of, texts_of, valid_in
from poundlock.formats.convert import FIRST_US
from poundlock.operators.local_times import LocalTimes, moves_clocks
from poundlock.sql.functions.casts import cast
from poundlock.sql.functions.function import (
    Evaluation,
    EvaluationError,
    Given,
    NullInColumn,
    NullRowtime,
    SqlFunction,
    ValueTooLong,
)
from poundlock.sql.functions.kernels.elements import ListElements, elements_of
from poundlock.sql.functions.kernels.json_texts import bracketed, joined_texts, json_texts
from poundlock.sql.functions.kernels.time_values import micros_in, to_instant
from poundlock.sql.types import STRING, SqlType

_MICROS = SqlType("TIMESTAMP", (6,))
_INSTANT = SqlType("TIMESTAMP_LTZ", (3,))
_BIGINT = SqlType("BIGINT", is_nullable=False)
_OLDEST_US = -62_135_596_800_000_000  # 0001-01-01, the oldest event time that there is


def _as_declared(given: Sequence[Given]) -> SqlType:
    raise AssertionError("the analysis knows the type")


def _bits(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return for GROUPING the bits of some keys in the number of a set of keys, the last one lowest."""
    number = numbers_in(columns[0])
    made = np.zeros(len(number), np.int64)
    for place in evaluation.options:
        made = (made << 1) | ((number >> int(place)) & 1)
    return column_of(made, pa.int64())


def _average(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return sums divided by counts, as Flink divides them: whole numbers stay whole; NULL of no values."""
    total, count = columns
    there = pc.greater(count, pa.array([0], pa.int64())[0])
    count = pc.if_else(there, count, pa.nulls(len(count), pa.int64()))
    kind = evaluation.returns.arrow
    if pa.types.is_integer(kind):
        return pc.cast(pc.divide(total, count), kind, safe=False)
    if pa.types.is_floating(kind):
        return pc.cast(pc.divide(pc.cast(total, pa.float64()), pc.cast(count, pa.float64())), kind)
    from poundlock.sql.functions.table import FUNCTIONS

    given = SqlType("DECIMAL", (38, evaluation.returns.sizes[1]))
    whole = cast(
        total, SqlType("DECIMAL", (total.type.precision, total.type.scale)), given, evaluation.zone, is_try=False
    )
    divisor = cast(count, _BIGINT, SqlType("DECIMAL", (20, 0)), evaluation.zone, is_try=False)
    divided = Evaluation(evaluation.rows, evaluation.zone, evaluation.now_us, evaluation.returns)
    return FUNCTIONS["/"].run([whole, divisor], divided)


def _rowtime(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return event times as instants: those without a zone count as UTC.

    Kinds of change may stand behind them. A deletion without a time, as one by the key alone is, counts as older than all rows.

    Raises:
        TerminalError: a row has none.
    """
    column, *kinds = columns
    if kinds and column.null_count:
        is_gone = pc.and_(pc.is_null(column), pc.equal(kinds[0], texts_of(["-D"])[0]))
        oldest = pc.cast(column_of(np.full(len(column), _OLDEST_US), pa.timestamp("us", column.type.tz)), column.type)
        column = pc.if_else(is_gone, oldest, column)
    if column.null_count:
        raise NullRowtime(
            "a row has NULL for its event time",
            next="leave such rows out: … WHERE time IS NOT NULL",
        )
    naive = column.cast(pa.timestamp("us", column.type.tz))
    return column_of(numbers_in(naive), pa.timestamp("us", "UTC"), valid_in(naive))


def _watermark(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return the watermarks that rows say, as instants; a row that says none does not move it. The first column is the event time.

    Raises:
        TerminalError: a row has no event time.
    """
    time, watermark = columns
    _rowtime([time], evaluation)
    known = watermark.cast(pa.timestamp("us", watermark.type.tz))
    micros, valid = numbers_in(known), valid_in(known)
    return column_of(micros if valid is None else np.where(valid, micros, FIRST_US), pa.timestamp("us", "UTC"))


def _current_watermark(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return the watermark that the rows of the checkpoint are judged by; NULL before the first one."""
    kind = evaluation.returns.arrow
    if evaluation.watermark_ms is None or evaluation.watermark_ms * 1_000 <= FIRST_US:  # no row has moved it yet
        return pa.nulls(evaluation.rows, kind)
    micros = np.full(evaluation.rows, evaluation.watermark_ms * 1_000, np.int64)
    return column_of(micros, pa.timestamp("us", kind.tz)).cast(kind)


def _current_watermark_type(given: Sequence[Given]) -> SqlType:
    if len(given) != 1 or given[0].type.root not in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        types = ", ".join(str(each.type) for each in given)
        raise DefinitionError(f"CURRENT_WATERMARK does not take ({types})", next="name the event time of a table")
    return SqlType(given[0].type.root, (3,))


def _window_bound(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return the bound of a window as SQL has it.

    Options: "last" for the last ms before it; and whether what is given is an instant, one whose wall time is wanted ("local"), or
    a wall time ("wall").
    """
    place, given = evaluation.options
    micros, returns = numbers_in(columns[0]) - (1_000 if place == "last" else 0), evaluation.returns
    if given == "wall" and returns.root == "TIMESTAMP_LTZ":
        wall = column_of(micros, pa.timestamp("us"))
        return cast(wall, SqlType("TIMESTAMP", (6,)), returns, evaluation.zone, is_try=False)
    if given == "local" and returns.root == "TIMESTAMP":
        instant = column_of(micros, pa.timestamp("us", "UTC"))
        return cast(instant, _INSTANT, returns, evaluation.zone, is_try=False)
    return column_of(micros, returns.arrow)


def _window_time(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return the instants at which windows are over, given their ends, less a ms. Option: whether those are wall times."""
    (end,) = columns
    last = micros_in(end) - 1_000
    if evaluation.options == ("1",) and moves_clocks(evaluation.zone):
        last = LocalTimes(evaluation.zone).ends(last // 1_000) * 1_000
    elif evaluation.options == ("1",):
        last = to_instant(last, evaluation.zone)
    return column_of(last, pa.timestamp("us", "UTC"))


def _not_null(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return true for all rows.

    Raises:
        EvaluationError: a value is NULL; the second column says whose.
    """
    value, of = columns
    if value.null_count:
        raise NullInColumn(
            f"NULL for {of[0]}, which is NOT NULL",
            next="leave such rows out, or SET 'table.exec.sink.not-null-enforcer' = 'DROP'",
        )
    return pa.repeat(pa.array([True])[0], len(value))


def _fits(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return true for all rows.

    Raises:
        EvaluationError: a text or bytes have another length than the column, which the second one describes; options are the least and the
            greatest length, in characters or bytes.
    """
    value, of = columns
    least, most = (int(option) for option in evaluation.options)
    is_bytes = pa.types.is_binary(value.type) or pa.types.is_fixed_size_binary(value.type)
    lengths = numbers_in(pc.fill_null(pc.binary_length(value) if is_bytes else pc.utf8_length(value), least))
    wrong = np.flatnonzero((lengths < least) | (lengths > most))
    if len(wrong):
        raise ValueTooLong(
            f"a value of length {int(lengths[wrong[0]])} for {of[0]}",
            next="declare a longer column, or SET 'table.exec.sink.type-length-enforcer' = 'TRIM_PAD'",
        )
    return pa.repeat(pa.array([True])[0], len(value))


def _insertion(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return true for all rows.

    Raises:
        EvaluationError: a kind of change is no insertion.
    """
    (kind,) = columns
    if not pc.all(pc.equal(kind, pa.array(["+I"], kind.type)[0])).as_py():
        raise EvaluationError(
            "rows change in batch mode, as the input came in parts",
            next="leave out 'source.max-files-per-checkpoint' and the like, which cut the input, or SET 'execution.runtime-mode' = 'streaming'",
        )
    return pa.repeat(pa.array([True])[0], len(kind))


def _except_count(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    left, right = (numbers_in(each) for each in columns)
    return column_of(np.maximum(left - right, 0), pa.int64())


def _intersect_count(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    left, right = (numbers_in(each) for each in columns)
    return column_of(np.minimum(left, right), pa.int64())


def _proctime(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return column_of(np.full(evaluation.rows, evaluation.now_us, np.int64), pa.timestamp("us", "UTC"))


def _json_array(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return lists of JSON texts as JSON, without those that are null; `[]` of none."""
    packed = elements_of(columns[0]).packed()
    valid = valid_in(packed.items)
    kept = np.arange(len(packed.items)) if valid is None else np.flatnonzero(valid)
    counts = np.bincount(packed.rows[kept], minlength=evaluation.rows)
    return bracketed(
        ListElements(packed.items.take(indices_of(kept)), np.cumsum(counts) - counts, counts, None), "[", "]"
    )


def _json_object(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return lists of keys and JSON texts as JSON, in the order of the keys, without those whose text is null.

    Raises:
        EvaluationError: a key is there twice, or null.
    """
    packed = elements_of(columns[0]).packed()
    keys, texts = packed.items.flatten()
    valid = valid_in(texts)
    kept = np.arange(len(texts)) if valid is None else np.flatnonzero(valid)
    keys, texts, rows = keys.take(indices_of(kept)), texts.take(indices_of(kept)), packed.rows[kept]
    if keys.null_count:
        raise EvaluationError(
            "JSON_OBJECTAGG with a key that is NULL", next="leave it out: FILTER (WHERE key IS NOT NULL)"
        )
    ranks, _ = ranks_of(keys)
    order = np.lexsort((ranks, rows))
    twice = np.flatnonzero((np.diff(rows[order]) == 0) & (np.diff(ranks[order]) == 0))
    if len(twice):
        raise EvaluationError(
            f"JSON_OBJECTAGG with the key {keys[int(order[twice[0]])].as_py()!r} twice in a group",
            next="GROUP BY it first, so that a group has each key once",
        )
    names = json_texts(keys.take(indices_of(order)), STRING)
    pairs = joined_texts([names, ":", texts.take(indices_of(order))], len(order))
    counts = np.bincount(rows, minlength=evaluation.rows)
    return bracketed(ListElements(pairs, np.cumsum(counts) - counts, counts, None), "{", "}")


FUNCTIONS = (
    SqlFunction("$BITS", _as_declared, _bits),
    SqlFunction("$AVG", _as_declared, _average),
    SqlFunction("$ROWTIME", _as_declared, _rowtime),
    SqlFunction("$WINDOW_BOUND", _as_declared, _window_bound),
    SqlFunction("$WINDOW_TIME", _as_declared, _window_time),
    SqlFunction("$NOT_NULL", _as_declared, _not_null),
    SqlFunction("$FITS", _as_declared, _fits),
    SqlFunction("$INSERTION", _as_declared, _insertion),
    SqlFunction("$EXCEPT_COUNT", _as_declared, _except_count),
    SqlFunction("$INTERSECT_COUNT", _as_declared, _intersect_count),
    SqlFunction("$JSON_ARRAYAGG", _as_declared, _json_array),
    SqlFunction("$JSON_OBJECTAGG", _as_declared, _json_object),
    SqlFunction("$WATERMARK", _as_declared, _watermark),
    SqlFunction("CURRENT_WATERMARK", _current_watermark_type, _current_watermark, is_deterministic=False),
    SqlFunction(
        "PROCTIME", lambda given: SqlType("TIMESTAMP_LTZ", (3,), is_nullable=False), _proctime, is_deterministic=False
    ),
)
