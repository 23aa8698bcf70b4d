"""What a job does, for OpenTelemetry: metrics, and a trace for each checkpoint; by the standard SDK and its environment variables."""
