"""JSON by columns: many objects that look alike at once."""
