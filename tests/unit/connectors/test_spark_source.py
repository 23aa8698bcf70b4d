"""A Spark format is passed on as it is, or refused with what to use instead."""

from __future__ import annotations

import pytest

from poundlock.connectors.base import SparkRead, SparkSource
from poundlock.connectors.spark_source import SparkFormatSource
from poundlock.errors import DefinitionError


def test_how_spark_reads_it() -> None:
    source = SparkFormatSource(
        "json", {"maxFilesPerTrigger": 5, "multiLine": True}, schema="a int", path="/data", columns=["a + 1 as b"]
    )
    assert source.spark_read() == SparkRead(
        format="json",
        options={"maxFilesPerTrigger": "5", "multiLine": "true", "path": "/data"},
        columns=["a + 1 as b"],
        schema="a int",
    )
    assert isinstance(source, SparkSource)
    assert source.describe({"batch": 1200}) == "json: goes on behind 1,200 batches"
    assert source.explain_error("x") is None
    assert not source.bounded


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("kafka",), "KafkaSource"),
        (("socket",), "SocketSource"),
        (("",), "SparkSource"),
        (("rate", {"a": None}), "text"),
        (("json", {}, "a innt"), "name type"),
    ],
)
def test_what_is_refused_says_what_to_use(arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        SparkFormatSource(*arguments)  # type: ignore[arg-type]
    assert words in caught.value.next
