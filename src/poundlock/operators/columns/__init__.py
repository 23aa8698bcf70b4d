"""Keyed operators that work on whole columns: aggregates of windows, without a look at a single record."""
