"""Savepoints of a running job, and the copies of checkpoints that are kept like them."""
