"""Avro between schemas: the one that a value was written with, the one that it is read by, unions as columns."""
