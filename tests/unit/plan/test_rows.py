"""Origins of rows on Spark's side: in a union some are from Kafka and others are not, and a function may change their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.chunk import Batch, KafkaOrigin, Records
from poundlock.formats.origin import SubsetOrigin, origin_of, within
from poundlock.operators.user_functions import Filter, Map, MapBatches
from poundlock.plan.rows import BAD, OFFSET, PARTITION, SPLIT, TOPIC, arrow_rows, chunk_of


def spark_rows(topics: list[str | None], partitions: list[int | None], offsets: list[int | None]) -> pa.RecordBatch:
    n = len(topics)
    return pa.record_batch(
        {
            "n": pa.array(range(n), pa.int64()),
            BAD: pa.nulls(n, pa.string()),
            TOPIC: pa.array(topics, pa.string()),
            PARTITION: pa.array(partitions, pa.int32()),
            OFFSET: pa.array(offsets, pa.int64()),
        }
    )


def test_rows_that_are_not_from_kafka_have_no_place() -> None:
    mixed = chunk_of(spark_rows([None, "t"], [None, 3], [None, 7]), lambda r: None, "s", None)
    assert [mixed.origin.at(i) for i in (0, 1)] == [{}, {"topic": "t", "partition": 3, "offset": 7}]


def test_rows_of_a_function_are_known_by_their_partition() -> None:
    chunk = chunk_of(spark_rows(["t"] * 3, [3] * 3, [7, 8, 9]), lambda r: None, "s", None)
    out: list[Batch] = []
    schema = pa.schema([("n", pa.int64())])
    MapBatches("m", lambda b: b.slice(1), schema).process(chunk, lambda tag, c: out.append(c))  # type: ignore[arg-type]
    assert [out[0].origin.at(i) for i in (0, 1)] == [{"topic": "t", "partition": 3}] * 2
    (again,) = arrow_rows(iter(out), schema, [BAD, TOPIC, PARTITION, OFFSET], [], "m")
    assert chunk_of(again, lambda r: None, "s", None).origin.at(1) == {"topic": "t", "partition": 3}


def test_rows_of_several_partitions_are_of_none() -> None:
    of = KafkaOrigin(["t", "t", "u"], np.array([1, 2, 2], np.int32), np.arange(3, dtype=np.int64))
    assert within(of, 5).at(4) == {}
    assert within(SubsetOrigin(of, [2]), 5).at(4) == {"topic": "u", "partition": 2}
    assert within(origin_of(Records([{}])), 5).at(4) == {}


def test_rows_of_a_split_keep_its_slot_through_a_function() -> None:
    given = pa.record_batch(
        {"n": pa.array([1, 2, 3]), BAD: pa.nulls(3, pa.string()), SPLIT: pa.array([4, None, 9], pa.int32())}
    )
    chunk = chunk_of(given, lambda r: None, "files", None)
    assert chunk.origin.at(0) == {"source": "files"}
    out: list[Any] = []
    keep = Filter(lambda row: row["n"] > 1)
    keep.process(chunk, lambda tag, c: out.append(c))
    twice = Map("m", lambda row: {"n": 2 * row["n"]}, ("n",))
    twice.process(out[0], lambda tag, c: out.append(c))
    (again,) = arrow_rows(iter(out[1:]), pa.schema([("n", pa.int64())]), [BAD, SPLIT], [], "m")
    assert again.to_pydict() == {"n": [4, 6], BAD: [None, None], SPLIT: [-1, 9]}
    (kafka,) = arrow_rows(iter([Batch(given.select(["n"]))]), pa.schema([("n", pa.int64())]), [BAD, SPLIT], [], "m")
    assert kafka.column(SPLIT).null_count == 3
