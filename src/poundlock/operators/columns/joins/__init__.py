"""Joins of two streams by columns."""
