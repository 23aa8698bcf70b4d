"""Steps that work row by row within a key, by columns: rolling aggregates, deduplication, the first n, windows of a number of rows."""
