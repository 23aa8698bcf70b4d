"""The interactive shell of `poundlock sql`: what is on the terminal."""
