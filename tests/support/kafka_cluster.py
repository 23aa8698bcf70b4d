"""Two Kafka brokers that replicate to each other, one of which a test may kill: whatever it leads, the other leads then.

The first is the cluster's controller too and stays; so two processes are enough for a leader that changes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from poundlock.testing.kafka import EmbeddedKafka
from poundlock.testing.servers import port_to_use

STAYS, LEADS = 1, 2
"""The brokers by their numbers."""


class TwoBrokers:
    """The running cluster."""

    def __init__(self, stays: EmbeddedKafka, leads: EmbeddedKafka) -> None:
        self.stays, self.leads = stays, leads

    @property
    def bootstrap_servers(self) -> str:
        """Both brokers."""
        return f"{self.stays.bootstrap_servers},{self.leads.bootstrap_servers}"

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic that both brokers have, led by the one that may be killed, and wait until it does."""
        topic = NewTopic(
            name, partitions, replica_assignment=[[LEADS, STAYS]] * partitions, config={"retention.ms": "-1"}
        )
        self.stays.admin.create_topics([topic])[name].result(30)
        self.wait_for_leader(name, LEADS)

    def wait_for_leader(self, name: str, broker: int) -> None:
        """Wait until a broker leads all partitions of a topic, and both are in sync where it is the one that may be killed."""
        while True:
            topic = self.stays.admin.list_topics(timeout=30).topics.get(name)
            found = list(topic.partitions.values()) if topic is not None else []
            synced = all(len(p.isrs) == 2 for p in found) or broker == STAYS
            if found and synced and all(p.leader == broker for p in found):
                return
            time.sleep(0.1)

    def lead_again(self, name: str) -> None:
        """Start the broker that was killed and let it lead a topic, as soon as it has caught up."""
        self.leads.start()
        count = len(self.stays.admin.list_topics(name, timeout=30).topics[name].partitions)
        places = [TopicPartition(name, number) for number in range(count)]
        while any(
            len(p.isrs) < 2 for p in self.stays.admin.list_topics(name, timeout=30).topics[name].partitions.values()
        ):
            time.sleep(0.1)
        try:
            self.stays.admin.elect_leaders(ElectionType.PREFERRED, places).result(30)
        except KafkaException as error:
            raise AssertionError(f"{name}: {error}") from error
        self.wait_for_leader(name, LEADS)


@contextmanager
def two_brokers(home: Path) -> Iterator[TwoBrokers]:
    """Run both brokers below a folder."""
    both = {
        "offsets.topic.replication.factor": 2, "transaction.state.log.replication.factor": 2,
        "default.replication.factor": 2, "min.insync.replicas": 1,
    }  # fmt: skip
    with EmbeddedKafka(home=home / "stays", properties=both) as stays:
        port = port_to_use(0, ())
        second = {
            **both, "process.roles": "broker", "node.id": LEADS,
            "controller.quorum.voters": f"{STAYS}@127.0.0.1:{stays._controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        }  # fmt: skip
        data = home / "leads" / "data"
        data.mkdir(parents=True)
        first = dict(
            line.split("=", 1)
            for line in (stays.home / "data" / "meta.properties").read_text().splitlines()
            if "=" in line
        )
        ids = {"version": 1, "cluster.id": first["cluster.id"], "node.id": LEADS, "directory.id": uuid.uuid4().hex[:22]}
        (data / "meta.properties").write_text("".join(f"{k}={v}\n" for k, v in ids.items()))
        with EmbeddedKafka(home=home / "leads", port=port, properties=second) as leads:
            yield TwoBrokers(stays, leads)
