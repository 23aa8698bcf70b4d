"""What runs in an executor: plain Python over Arrow, without pyspark."""
