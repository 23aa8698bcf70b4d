"""Tables and their changes as a source."""
