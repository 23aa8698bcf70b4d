"""Windows as a user names them: assigners, triggers, evictors, functions."""
