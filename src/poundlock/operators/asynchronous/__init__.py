"""A user's function that waits for something else, called for many records at once."""
