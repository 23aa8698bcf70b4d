"""Tables as a sink: by prepared transactions, or by key."""
