"""Columns as msgpack: written, and read back, for all rows at once."""
