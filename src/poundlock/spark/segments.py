"""A Spark segment: blocks of rows out of a stage of tasks enter the JVM, Catalyst runs the job's SQL and DataFrame functions, blocks come out.

Rows go in once and keep their order and their hidden columns on the way through row-wise SQL. A DataFrame function sees the rows
of one checkpoint, without hidden columns, and its rows have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.plan.segments import Segment
from poundlock.spark.error_translation import explain
from poundlock.spark.frames import apply_sql, apply_sql_kept, arrow_schema, map_arrow, quoted
from poundlock.stream.nodes import ApplyNode, Node, SqlNode, UnionNode
from poundlock.tasks.columns import visible
from poundlock.tasks.exchange.segment_blocks import BLOCK, NUMBER, pack_blocks, pack_numbered_blocks, unpack_blocks

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

    from poundlock.spark.launch.session import Session


_KEEP, _OUTPUT = "__keep", "__output"


@dataclass(frozen=True)
class LoweredSegment:
    """A segment over the blocks of one checkpoint, per output those of its rows. Nothing has run yet, unless a function of the user's asked
    for it. What is kept makes rows enter the JVM once."""

    blocks: Mapping[str, RDD[bytes]]
    kept: Sequence[RDD[Any]]

    def release(self) -> None:
        """Release what is kept; call it when the checkpoint's tasks have ended."""
        for rdd in self.kept:
            rdd.unpersist()


@dataclass(frozen=True)
class SparkSegment:
    """A segment and, per input, the columns that come into it, hidden ones included."""

    segment: Segment
    input_schemas: Mapping[str, pa.Schema]
    _output_schemas: dict[str, pa.Schema] = field(default_factory=dict, init=False, compare=False)

    def schemas(self, session: SparkSession) -> Mapping[str, pa.Schema]:
        """Return per output its columns, hidden ones included, as Spark finds them; no job runs.

        Raises:
            DefinitionError: an output has a column of a type that has no DDL, or a function gives no DataFrame.
                Or an expression names a column that is not there, or the like.
        """
        if not self._output_schemas:
            inputs = {
                name: session.createDataFrame([], ddl.render(schema)) for name, schema in self.input_schemas.items()
            }
            frames = self._frames(inputs)
            for node in self.segment.outputs:
                self._output_schemas[node.id] = arrow_schema(frames[node.id], node.id)
        return self._output_schemas

    def lower(self, session: SparkSession, blocks: Mapping[str, RDD[bytes]]) -> LoweredSegment:
        """Put the segment over the blocks of a checkpoint, per input. Those that are read more than once are kept in memory or on disk."""
        from pyspark import StorageLevel

        schemas = self.schemas(session)
        kept: list[RDD[Any]] = []
        if self._one_pass:
            numbered = self._numbered(session, blocks)
            numbered.persist(StorageLevel.MEMORY_AND_DISK)
            outputs = {
                node.id: numbered.filter(partial(_has_number, number=number)).map(itemgetter(1))
                for number, node in enumerate(self.segment.outputs)
            }
            return LoweredSegment(outputs, [numbered])
        for name in self._read_again:
            blocks[name].persist(StorageLevel.MEMORY_AND_DISK)
            kept.append(blocks[name])
        frames = self._frames({name: self._rows(session, name, rdd) for name, rdd in blocks.items()})
        outputs = {
            name: map_arrow(frames[name], partial(pack_blocks, schema=schema), f"{BLOCK} binary").rdd.map(_first)
            for name, schema in schemas.items()
        }
        return LoweredSegment(outputs, kept)

    @property
    def _one_pass(self) -> bool:
        """Whether one pass over one input makes several outputs: row-wise SQL only."""
        segment = self.segment
        row_wise = all(isinstance(node, SqlNode) for node in segment.nodes)
        return len(segment.outputs) > 1 and len(segment.inputs) == 1 and row_wise

    @property
    def _read_again(self) -> Sequence[str]:
        """The inputs that are read more than once, or may be: what a DataFrame function does with its rows is not known."""
        functions = any(isinstance(node, ApplyNode) for node in self.segment.nodes)
        return [
            node.id
            for node in self.segment.inputs
            if functions or sum(node is parent for each in self.segment.nodes for parent in each.inputs) > 1
        ]

    def _rows(self, session: SparkSession, name: str, blocks: RDD[bytes]) -> DataFrame:
        """Return the rows of some blocks as Spark's."""
        from pyspark.sql.types import BinaryType, StructField, StructType

        schema = StructType([StructField(BLOCK, BinaryType(), nullable=False)])
        frame = session.createDataFrame(blocks.map(_alone), schema, verifySchema=False)
        columns = ddl.render(self.input_schemas[name])
        return map_arrow(frame, partial(unpack_blocks, schema=ddl.parse(columns)), columns)

    def _frames(self, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """Return the rows behind every step of the segment, and those that come in."""
        frames = dict(inputs)
        for node in self.segment.nodes:
            frames[node.id] = apply_step(node, [frames[parent.id] for parent in node.inputs])
        return frames

    def _numbered(self, session: SparkSession, blocks: Mapping[str, RDD[bytes]]) -> RDD[Any]:
        """Return (number of an output, block): all outputs out of one pass, in which filtered rows become null."""
        head = self.segment.inputs[0]
        base = self._rows(session, head.id, blocks[head.id])
        frame = base.selectExpr(f"struct({', '.join(quoted(base.columns))}) AS `{_OUTPUT}`")
        columns: list[str] = []
        for number, output in enumerate(self.segment.outputs):
            stay = [_OUTPUT, *columns]
            frame = frame.selectExpr(*quoted(stay), f"`{_OUTPUT}`.*", f"true AS `{_KEEP}`")
            for node in _way_to(output, head):
                frame = apply_sql_kept(frame, node, kept=stay, keep=_KEEP)
            own = [name for name in frame.columns if name not in (*stay, _KEEP)]
            columns.append(f"{_OUTPUT}{number}")
            row = f"IF(`{_KEEP}`, struct({', '.join(quoted(own))}), NULL) AS `{columns[-1]}`"
            frame = frame.selectExpr(*quoted(stay), row)
        pack = partial(pack_numbered_blocks, schemas=[self._output_schemas[node.id] for node in self.segment.outputs])
        return map_arrow(frame.select(*columns), pack, f"{NUMBER} int, {BLOCK} binary").rdd.map(_numbered_block)


class SessionAnalysis:
    """Asks a session; its SQL engine starts with the first question."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def segment(
        self, segment: Segment, inputs: Mapping[str, pa.Schema]
    ) -> tuple[SparkSegment, Mapping[str, pa.Schema]]:
        """Return a segment that can be run, and the columns of each output, hidden ones included."""
        made = SparkSegment(segment, inputs)
        return made, made.schemas(self._session.sql)

    def name_of(self, schema: pa.Schema, text: str) -> str:
        """Return what Spark calls an expression over some columns."""
        empty = self._session.sql.createDataFrame([], ddl.render(schema))
        return str(empty.selectExpr(text).columns[0])  # an aggregate alone is one over all rows


def apply_step(node: Node, inputs: Sequence[DataFrame], *, streaming: bool = False) -> DataFrame:
    """Return the rows behind one step that Spark runs.

    Args:
        streaming: whether the rows are of a stream, and stay one.

    Raises:
        DefinitionError: a function gives no DataFrame, or one that is a stream where its rows are not, or the reverse; or
            Spark cannot plan the step. It is named, with the line it was written in.
    """
    from pyspark.errors import AnalysisException

    try:
        if isinstance(node, SqlNode):
            return apply_sql(inputs[0], node)
        if isinstance(node, UnionNode):
            return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), inputs)
        if isinstance(node, ApplyNode):
            return _apply_function(node, inputs, streaming)
    except AnalysisException as error:
        cause = explain(error)
        raise type(cause)(f"{node.id} ({node.line}): {cause.what}", next=cause.next) from error
    raise TypeError(f"{type(node).__name__} is no step that Spark runs")


def _apply_function(node: ApplyNode, inputs: Sequence[DataFrame], streaming: bool) -> DataFrame:
    from pyspark.sql import DataFrame

    made: Any = node.function(*[_own_columns(frame) for frame in inputs])
    if not isinstance(made, DataFrame):
        raise DefinitionError(
            f"{node.id}: the function returned {type(made).__name__}, not a DataFrame",
            next="return the DataFrame that the steps are called on",
        )
    if streaming and not made.isStreaming:
        raise DefinitionError(
            f"{node.id}: the function does not return the stream that it is given",
            next="return a DataFrame that is made of the function's argument",
        )
    if made.isStreaming and not streaming:
        raise DefinitionError(
            f"{node.id}: the function reads a stream of its own",
            next="make that stream a source of the job, and give it to apply(function, stream)",
        )
    return made


def _own_columns(frame: DataFrame) -> DataFrame:
    """Return a user's columns as columns of their own: a frame that is given twice can be joined with itself."""
    from pyspark.sql import functions as F

    names = visible(frame.columns)
    return frame.select(*(F.col(text).alias(name) for text, name in zip(quoted(names), names, strict=True)))


def _way_to(output: Node, head: Node) -> list[SqlNode]:
    """Return the row-wise steps from the rows that come in to an output."""
    way: list[SqlNode] = []
    node = output
    while node is not head:
        assert isinstance(node, SqlNode)
        way.append(node)
        node = node.inputs[0]
    return way[::-1]


# Functions of RDDs: named, so that they travel by reference.


def _alone(block: bytes) -> tuple[bytes]:
    return (block,)


def _first(row: Any) -> bytes:
    return bytes(row[0])


def _numbered_block(row: Any) -> tuple[int, bytes]:
    return int(row[0]), bytes(row[1])


def _has_number(element: tuple[int, bytes], *, number: int) -> bool:
    return element[0] == number
