"""Rows on their way: what tasks leave in a folder for the driver to hand on when their checkpoint is decided."""
