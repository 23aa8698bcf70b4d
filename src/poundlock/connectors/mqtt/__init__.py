"""Topics of an MQTT broker as a source and as a sink."""
