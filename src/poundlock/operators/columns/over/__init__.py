"""Aggregates of the rows around each row, and rows in an order, by columns."""
