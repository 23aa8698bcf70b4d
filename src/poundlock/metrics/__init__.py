"""What is measured of a job: what its tasks did, how its checkpoints went, and the metrics that its functions keep."""
