"""Nodes of databases and of what is searched, each a real one of its own, for trials and tests."""

"""Databases for trials and tests, beside that of PostgreSQL."""
