"""From relations to the streams of a job: which of our steps does the work of each."""
