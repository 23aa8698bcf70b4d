"""What sqlglot reads of a statement: grammar of our own, and the clauses that it reads and nobody here does."""
