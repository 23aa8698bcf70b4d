"""Keyed operators in plain Python: state and timers of key groups, windows, processes. No Spark, no I/O, no clock of their own."""
