"""Functions of a user's own in SQL: how they are declared, loaded and computed."""
