"""The Cassandra sink: rows by their primary key, under the timestamp of their checkpoint. Scylla speaks the same protocol."""
