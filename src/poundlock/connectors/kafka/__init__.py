"""Kafka: reading through Spark's own connector, asking the cluster through confluent-kafka.

Nothing is imported here, so that naming a source costs nothing; see source.py, reading.py, cluster.py.
"""
