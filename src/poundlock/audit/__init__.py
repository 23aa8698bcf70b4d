"""What proves a job's output: the audit, fsck, and the comparison with a replay. Reads only."""
