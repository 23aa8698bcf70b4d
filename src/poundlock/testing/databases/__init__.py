"""Databases for trials and tests, beside that of PostgreSQL."""
