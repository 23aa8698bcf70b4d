"""Apache Iceberg's tables."""
