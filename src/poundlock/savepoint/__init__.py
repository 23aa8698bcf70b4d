"""Savepoints: a job's whole state as a folder its user owns. Taken at a checkpoint's border, restored into a new checkpoint."""
