"""Reads Iceberg tables: one snapshot, or the snapshots as they come."""
