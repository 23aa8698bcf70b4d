"""SQL aggregates by columns."""
