"""A rule for each kind of relation: the steps of a stream that do its work."""
