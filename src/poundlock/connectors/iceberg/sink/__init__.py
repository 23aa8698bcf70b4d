"""Writes Iceberg tables: data files by tasks, one commit a decision by the driver."""
