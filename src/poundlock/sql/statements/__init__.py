"""What the statements of a script do: those that define, those that show, those that run."""
