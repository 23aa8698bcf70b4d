"""Event time in the tasks: how rows get it, and what is reported of it."""
