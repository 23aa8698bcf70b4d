"""Spark's own Kafka connector, beside which the Kafka cases run; poundlock itself needs none.

pip's pyspark does not have it. That of 4.2.0 is the newest published, and runs on pyspark 4.2 and 4.3; the newest token provider
is 4.0.0. Their other dependencies are in pyspark/jars.
"""

from __future__ import annotations

from poundlock.spark.launch.jars import JarPins, Pin, jar_set

__all__ = ["connector_jars"]

_CONNECTOR = JarPins(
    what="Spark's Kafka connector",
    pins=tuple(
        Pin(*line.split())
        for line in """
org.apache.spark spark-sql-kafka-0-10_2.13 4.2.0 64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705
org.apache.spark spark-token-provider-kafka-0-10_2.13 4.0.0 f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767
org.apache.kafka kafka-clients 3.9.2 014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8
org.apache.commons commons-pool2 2.13.1 f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f
""".strip().splitlines()
    ),
)


def connector_jars() -> str:
    """Return the paths of the connector's jars, comma-separated, fetching what is not there yet."""
    return ",".join(jar_set("spark-kafka", progress=print, pins=_CONNECTOR))
