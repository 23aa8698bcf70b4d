"""The jdbc connector."""
