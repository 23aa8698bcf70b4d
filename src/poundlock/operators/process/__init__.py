"""What process functions, rolling aggregates and joins mean: operators over the state of a key group, exactly as in Flink."""
