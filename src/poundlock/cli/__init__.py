"""The command `poundlock`: a function a command, whose result an Output prints for people or as JSON."""
