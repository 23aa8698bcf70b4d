"""Topics read back, transaction by transaction, and compared with what was decided."""
