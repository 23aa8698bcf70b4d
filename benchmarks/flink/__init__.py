"""Flink's Java jobs and PyFlink's programs as baselines: installed once by `make bench-flink`, then run beside ours in the same minutes."""
