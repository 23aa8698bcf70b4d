"""Immutable sorted files and what is done with them: written, opened, copied, looked up, merged. They know nothing of operators."""
