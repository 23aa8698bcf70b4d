"""The only place that knows Spark: batch jobs, sessions, masters."""
