"""PostgreSQL: rows out of tables and into them."""
