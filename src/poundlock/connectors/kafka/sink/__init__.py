"""KafkaSink: records written to topics in transactions that a decision commits."""
