"""Topics of Apache Pulsar as a source and as a sink."""
