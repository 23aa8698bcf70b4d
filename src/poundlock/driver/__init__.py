"""One process, one job: the loop that takes checkpoint after checkpoint."""
