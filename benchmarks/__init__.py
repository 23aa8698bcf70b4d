"""Benchmarks: poundlock beside Spark's own file sink and Flink's Java job, on the same rows, in the same minutes."""
