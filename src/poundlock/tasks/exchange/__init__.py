"""How rows change hands between tasks: blocks by key group, and blocks into and out of a Spark segment."""
