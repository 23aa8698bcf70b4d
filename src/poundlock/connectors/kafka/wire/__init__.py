"""Kafka's protocol as bytes: connections, Fetch, record batches, compression."""
