"""Tables whose rows are the changes of a table of a server."""
