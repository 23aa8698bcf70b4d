"""Where records come from and go: one folder a system. Plain Python; pyspark is never imported here."""
