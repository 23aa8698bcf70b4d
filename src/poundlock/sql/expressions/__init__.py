"""Expressions of SQL: with their types, and over columns."""
