"""PostgreSQL: rows out of tables, their changes, and rows into tables."""
