"""The only place that knows the JVM: session, jars, driver loop, restart strategies."""
