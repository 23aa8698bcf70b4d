"""Scripts as jobs: how queries and inserts become a job, and where the rows of a query go that nobody writes."""
