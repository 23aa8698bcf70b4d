"""Files as a source: discovered, cut into splits, read by the tasks."""
