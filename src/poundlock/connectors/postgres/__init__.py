"""PostgreSQL: its tables and their changes as a source."""
