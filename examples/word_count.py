"""Kafka -> running word count -> Kafka, exactly once: for each word of `input-topic`, how often it has been seen so far.

Start a broker with: poundlock kafka up --topic input-topic --topic output-topic
Then run: poundlock run examples/word_count.py
"""

import re
from collections.abc import Iterator
from os import environ

from poundlock import Job, KafkaSink, KafkaSource

SERVERS = environ.get("WORD_COUNT_SERVERS", "localhost:9092")


def words(record: dict) -> Iterator[dict]:
    r"""Yield the words of a line, as Java's `toLowerCase().split("\\W+")` has them: what is not ASCII parts words."""
    line = (record["value"] or b"").decode("utf-8", "replace")
    for word in re.split(r"\W+", line.lower(), flags=re.ASCII):
        if word:
            yield {"word": word, "n": 1}


job = Job(
    "word-count",
    checkpoint_interval=environ.get("WORD_COUNT_INTERVAL", "1 s"),
    checkpoint_dir=environ.get("WORD_COUNT_CHECKPOINTS"),
    on_error="fail",
    require="exactly-once",
)
lines = job.from_source(
    KafkaSource(bootstrap_servers=SERVERS, topics=environ.get("WORD_COUNT_FROM", "input-topic")), name="lines"
)
(
    lines.flat_map(words, schema="word string, n bigint", name="words")
    .key_by("word")
    .sum("n", name="counts")
    .sink_to(KafkaSink(SERVERS, environ.get("WORD_COUNT_TO", "output-topic"), key="word", format="json"), name="out")
)
