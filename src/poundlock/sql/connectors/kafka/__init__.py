"""The kafka and upsert-kafka connectors: topics as tables, with Flink's options."""
