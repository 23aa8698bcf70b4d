"""Partitions of a file sink: when one is complete, and how that is made known."""
