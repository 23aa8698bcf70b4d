"""Operators of SQL, which are functions whose names are signs and words."""
