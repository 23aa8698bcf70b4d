"""Kafka: topics read by the tasks themselves, and written in transactions. The driver asks the cluster through confluent-kafka.

Nothing is imported here, so that naming a source costs nothing; see source/ for reading, sink/ for writing, audit/ for reading back.
"""
