"""Operators over changelogs by columns: aggregates of groups whose rows may be retracted."""
