"""The source of Delta tables."""
