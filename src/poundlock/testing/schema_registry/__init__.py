"""A schema registry for trials and tests."""
