"""Tables of systems of messages: what is one message is one row, or one change, and the rest of a message is metadata."""
