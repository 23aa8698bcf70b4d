"""What an interactive shell needs beside its terminal: where a statement ends, what may be typed next, how a result changes."""
