"""High availability: a second driver that waits with a warm Spark session until the first one is gone, and goes on in its place."""
