"""Delta tables as sinks and sources."""
