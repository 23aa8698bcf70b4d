"""Commands that start a job, look at it, or ask something of it."""
