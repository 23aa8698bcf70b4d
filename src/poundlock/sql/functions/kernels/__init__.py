"""What functions of SQL are computed with: distinct values, bytes of texts, Java's patterns, JSON paths, elements of arrays."""
