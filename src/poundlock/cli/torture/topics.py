"""The topics of a sandbox, on the brokers of the job's own Kafka sinks: made before the first run, and deleted at the end."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from poundlock.cli.torture.sandbox import RUNS, Sandbox
from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.job import Job
from poundlock.testing.topics import Topics


class SandboxTopics(Topics):
    """The topics on a sink's brokers.

    Args:
        sink: whose login holds.
    """

    def __init__(self, sink: KafkaSink) -> None:
        self._servers = sink.bootstrap_servers
        self._client_settings = sink.security.confluent()

    @property
    def bootstrap_servers(self) -> str:
        """Host and port for clients."""
        return self._servers

    def partitions_of(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 where there is none."""
        there = self.admin.list_topics(timeout=30).topics.get(topic)
        return 0 if there is None else len(there.partitions)


def named_topics(job: Job) -> dict[str, tuple[str, int]]:
    """Return what the topics of each Kafka sink in a sandbox begin with, and how many partitions they have: as many as its own."""
    mark = secrets.token_hex(4)
    named = {}
    for node in job.sinks:
        if isinstance(node.sink, KafkaSink):
            count = SandboxTopics(node.sink).partitions_of(str(node.sink.topic)) or node.sink.create_topic or 1
            named[node.id] = (f"poundlock-torture-{mark}-{node.sink.topic}"[:200], count)
    return named


@contextmanager
def made_topics(job: Job, sandbox: Sandbox, *, keep: bool) -> Iterator[None]:
    """Make the topics of both runs, and delete them behind a block unless they are to be kept."""
    with ExitStack() as ends:
        for node in job.sinks:
            if not isinstance(node.sink, KafkaSink):
                continue
            topics = SandboxTopics(node.sink)
            for run in RUNS:
                name = sandbox.topic(run, node.id)
                topics.create_topic(name, sandbox.topics[node.id][1])
                if not keep:
                    ends.callback(_delete, topics, name)
        yield


def _delete(topics: SandboxTopics, name: str) -> None:
    """Delete a topic of a run and that of its markers, which the sink has made."""
    for each in (name, f"{name}-markers"):
        if topics.partitions_of(each):
            topics.delete_topic(each)
