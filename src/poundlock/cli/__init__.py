"""The command `poundlock`: one file a command, each returning a value that an Output prints for people or as JSON."""
