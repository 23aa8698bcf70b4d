"""Queries as relations: what each gives, of what it is made, and how it changes."""
