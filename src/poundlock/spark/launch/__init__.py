"""What has to be there before Spark runs: Java, jars, class archives, settings, and the session itself."""
