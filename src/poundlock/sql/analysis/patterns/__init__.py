"""MATCH_RECOGNIZE: its pattern, and what its conditions and measures are computed of."""
