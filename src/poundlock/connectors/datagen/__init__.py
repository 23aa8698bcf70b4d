"""Rows made up on the spot, the same ones on every replay."""
