"""Messages of Protobuf without a registry: by a descriptor set, in Python and in SQL."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from poundlock.connectors.kafka.sink.message_encoder import MessageMaker
from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.connectors.kafka.source.source import KafkaSource
from poundlock.errors import DefinitionError
from poundlock.formats.chunk import Batch
from poundlock.formats.protobuf.descriptors import set_of_text
from poundlock.formats.protobuf.messages import ProtobufCodec
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError
from poundlock.sql.formats.format import FormatColumn, FormatContext
from poundlock.sql.formats.registry import decoder_of, encoder_of
from poundlock.sql.types import STRING, SqlType

PROTO = 'syntax = "proto3"; package shop; message Order { int64 id = 1; optional string name = 2; }'
ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


@pytest.fixture(scope="module")
def files() -> bytes:
    return set_of_text(PROTO)[0]


def test_a_sink_writes_what_a_source_reads(files: bytes) -> None:
    sink = KafkaSink("a:1", "t", format="protobuf", format_options={"descriptor_set": files})
    made = MessageMaker(sink, lambda bad: pytest.fail(bad.reason)).messages(Batch(pa.RecordBatch.from_pylist(ROWS)))
    values = [made.values.at(row) or b"" for row in range(len(made))]
    assert values == [b"\x08\x01\x12\x01a", b"\x08\x02"]
    source = KafkaSource(
        bootstrap_servers="a:1", topics="t", format="protobuf", format_options={"descriptor_set": files, "message": "shop.Order"}
    )  # fmt: skip
    assert source.schema().names == ["id", "name"]
    parsed = ProtobufCodec(descriptor_set=files).parse([*values, b"\xff"], "batch")
    assert parsed.rows.to_pylist() == ROWS  # type: ignore[union-attr]
    assert "not a message shop.Order" in parsed.bad[2]


def test_what_is_no_message_is_refused(files: bytes) -> None:
    with pytest.raises(DefinitionError, match=r"there is no message 'shop\.Other'"):
        ProtobufCodec(descriptor_set=files, message="shop.Other")
    with pytest.raises(DefinitionError, match="needs a descriptor set or a generated class"):
        KafkaSink("a:1", "t", format="protobuf")


def test_a_table_of_sql(files: bytes, tmp_path: Path) -> None:
    (tmp_path / "order.desc").write_bytes(files)
    options = {"format": "protobuf", "protobuf.descriptor-file": str(tmp_path / "order.desc")}
    columns = (FormatColumn("name", "c0", STRING), FormatColumn("id", "c1", SqlType("BIGINT")))
    context = FormatContext("t", columns, ZoneInfo("UTC"))
    rows = pa.RecordBatch.from_pylist([{"c0": row["name"], "c1": row["id"]} for row in ROWS])
    records = encoder_of(TableOptions("t", options), context).encode(rows)
    read, places = decoder_of(TableOptions("t", options), context).decode(records, ["c0", "c1"])
    assert (read.to_pylist(), places) == (rows.to_pylist(), None)
    other = FormatContext("t", (FormatColumn("price", "c0", STRING),), ZoneInfo("UTC"))
    with pytest.raises(OptionError, match="has no field 'price'"):
        decoder_of(TableOptions("t", options), other)
