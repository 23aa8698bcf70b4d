"""What the user says: an immutable graph of nodes. No Spark."""
