"""MATCH_RECOGNIZE: patterns in the rows of a key."""
