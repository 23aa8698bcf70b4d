"""What a job means: plain Python that runs alike in a task, a test and a notebook. No Spark, no I/O of its own."""
