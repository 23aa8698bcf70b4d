"""Tables of Apache Iceberg."""
