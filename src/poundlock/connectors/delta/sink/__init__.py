"""The sink of Delta tables."""
