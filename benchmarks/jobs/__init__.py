"""The poundlock jobs that are measured, each a program of its own, as a user would write it."""
