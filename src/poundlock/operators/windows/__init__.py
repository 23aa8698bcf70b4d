"""What windows mean: assigners, triggers, evictors and window functions over the state of a key group, exactly as in Flink."""
