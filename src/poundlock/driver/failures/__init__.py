"""What went wrong in a job: the attempts at a checkpoint, and the record of failures."""
