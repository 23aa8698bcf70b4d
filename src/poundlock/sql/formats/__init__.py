"""Formats of tables: bytes to columns and back, with Flink's options and rules."""
