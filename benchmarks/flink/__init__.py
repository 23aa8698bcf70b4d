"""Flink's Java job as a baseline: installed once by `make bench-flink`, then run beside ours in the same minutes."""
