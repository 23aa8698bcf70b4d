"""Functions of SQL: what each returns, and how it is computed over columns."""
