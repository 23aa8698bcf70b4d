"""Nexmark, an auction house: its events, its queries in Flink SQL, and how both engines run them from the same text."""
